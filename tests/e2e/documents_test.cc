// The documents say what works: every command that they show is run here as a reader would run it,
// page by page, or its block says what it needs, and then at least its words are right.
//
// A page is run in one session on a machine of its own: namespaces of mounts and networks, so that
// the folders and ports which the documents name are nobody else's. Programs of the reader's are
// scripts that end at once.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <regex>
#include <sched.h>
#include <set>
#include <signal.h>
#include <sstream>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "services/ctl/options.h"
#include "tests/e2e/document_blocks.h"
#include "tests/e2e/hosts/network.h"
#include "tests/testing/story.h"

namespace qgpu::e2e::documents_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRoot = QGPU_SOURCE_ROOT;
constexpr auto kPatience = std::chrono::seconds(60);

std::string contentOf(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// README.md and its neighbours, and all below docs/ and deploy/.
std::vector<Page> allPages() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(kRoot)) paths.push_back(entry.path());
  for (const char* folder : {"docs", "deploy"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(kRoot) / folder)) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Page> pages;
  for (const fs::path& path : paths) {
    if (path.extension() != ".md") continue;
    pages.push_back(readPage(path.lexically_relative(kRoot), contentOf(path)));
  }
  return pages;
}

// --- whether the words are right ---

const std::string& helpOf(const std::string& program) {
  static std::map<std::string, std::string> known;
  const auto found = known.find(program);
  if (found != known.end()) return found->second;
  return known[program] = run({program, "--help"}).output;
}

// Empty, or what is wrong with it. A name alone, as `qgpuctl evict`, is one that has help; an
// option without its value at the end, as `qgpuctl run --memory`, stands in that help.
std::string wrongWithQgpuctl(std::vector<std::string> words) {
  std::string option;
  if (words.size() == 2 && words[1].starts_with("--")) {
    option = words[1];
    words.pop_back();
  }
  if (words.size() == 1) words = {"help", words[0]};
  const auto parsed = ctl::parseOptions(std::move(words));
  const auto* exit = std::get_if<ctl::ExitNow>(&parsed);
  if (exit == nullptr) return "";
  if (exit->code != 0) return exit->text;
  return exit->text.find(option) == std::string::npos ? "it has no " + option : "";
}

std::string wrongWithDev(const std::vector<std::string>& words) {
  const std::string help = run({"sh", std::string(kRoot) + "/dev", "help"}).output;
  const std::regex line("\n  " + words.at(0) + "[ \n]");
  return std::regex_search(help, line) ? "" : "./dev help does not know it";
}

// Each flag of a program of ours, or of a script, is one that it has.
std::string wrongFlags(const std::string& help, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") break;
    if (!word.starts_with("--") || word == "--help") continue;
    const std::string flag = word.substr(0, word.find('='));
    if (help.find(flag) == std::string::npos) return "it has no " + flag;
  }
  return "";
}

// What a script has in it: by its path, or by its name where the text says no more.
std::string scriptNamed(const fs::path& script) {
  if (script.has_parent_path()) return contentOf(fs::path(kRoot) / script);
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(kRoot) / "deploy")) {
    if (entry.path().filename() == script) all += contentOf(entry.path());
  }
  return all;
}

// Of a simple command, whose first word is the program.
std::string wrongWith(std::vector<std::string> words) {
  while (!words.empty() && std::regex_match(words[0], std::regex("[A-Z_]+=.*"))) {
    words.erase(words.begin());
  }
  if (!words.empty() && (words.back() == "&" || words.back() == "...")) words.pop_back();
  if (words.empty()) return "";
  const std::string program = words[0];
  const std::string name = fs::path(program).filename();
  words.erase(words.begin());
  if (program.ends_with(':')) return "";  // what it says
  if (program == "./dev") return words.empty() ? "which command?" : wrongWithDev(words);
  if (name == "qgpuctl") return words.empty() ? "" : wrongWithQgpuctl(words);
  if (name.starts_with("qgpu-") && (program == name || program.starts_with("build/bin/"))) {
    return fs::exists(binary(name)) ? wrongFlags(helpOf(binary(name)), words)
                                    : "there is no such program";
  }
  if (name.ends_with(".sh")) {
    const std::string script = scriptNamed(program);
    return script.empty() ? "there is no such script" : wrongFlags(script, words);
  }
  return "";
}

// The simple commands of a line: what `&&`, `||`, `|` and `;` part.
std::vector<std::vector<std::string>> simpleCommands(const std::string& text) {
  static const std::set<std::string> kBetween = {"&&", "||", "|", ";", "do", "then"};
  std::vector<std::vector<std::string>> commands(1);
  for (std::string word : shellWords(text)) {
    if (kBetween.contains(word)) {
      commands.emplace_back();
    } else {
      commands.back().push_back(std::move(word));
    }
  }
  return commands;
}

TEST(Documents, WhatIsShownInShellBlocksHasRightWords) {
  std::size_t commands = 0;
  for (const Page& page : allPages()) {
    for (const Block& block : page.blocks) {
      std::string script;
      for (const Shown& shown : block.commands) {
        ++commands;
        script += shown.text + "\n";
        for (const auto& words : simpleCommands(shown.text)) {
          EXPECT_EQ(wrongWith(words), "") << shown.place << ": " << shown.text;
        }
      }
      const Finished syntax = run({"sh", "-n", "-c", script});
      EXPECT_EQ(syntax.status, 0) << block.place << ": " << syntax.output;
      for (const std::string& need : block.needs) {
        EXPECT_NE(std::find(std::begin(kNeeds), std::end(kNeeds), need), std::end(kNeeds))
            << block.place << ": nobody knows the need " << need;
      }
    }
  }
  EXPECT_GT(commands, 30u);
}

TEST(Documents, NoCommandHidesWhereNobodyRunsIt) {
  for (const Page& page : allPages()) {
    for (const Shown& stray : page.strays) {
      ADD_FAILURE() << stray.place
                    << ": put it into a block that begins with ```sh: " << stray.text;
    }
  }
}

TEST(Documents, WhatTheTextSaysOfCommandsHasRightWords) {
  std::size_t checked = 0;
  for (const Page& page : allPages()) {
    for (const Shown& span : page.spans) {
      const std::vector<std::string> words = shellWords(span.text);
      if (words.size() < 2) continue;
      ++checked;
      EXPECT_EQ(wrongWith(words), "") << span.place << ": `" << span.text << "`";
    }
  }
  EXPECT_GT(checked, 50u);
}

// --- run ---

// Empty, or why this machine can't be given away from under a test. Before any thread.
std::string enterOwnMachine() {
  if (const std::string why = Network::enter(); !why.empty()) return why;
  const auto mounted = [](const char* what, const char* where, unsigned long flags) {
    return ::mount("none", where, what, flags, what != nullptr ? "mode=755" : nullptr) == 0;
  };
  const bool own = ::unshare(CLONE_NEWNS) == 0 && mounted(nullptr, "/", MS_REC | MS_PRIVATE) &&
                   mounted("tmpfs", "/run", 0) && mounted("tmpfs", "/var/lib", 0);
  return own ? "" : std::string("no mount namespace is allowed here: ") + std::strerror(errno);
}

std::string whyNotRun;

// A reader with one page before them.
class Session {
 public:
  Session() {
    for (const char* name : {"docs", "deploy", "tests", "bench"}) link(kRoot, name);
    fs::create_directory_symlink(fs::path(binary("")).parent_path().parent_path(), at("build"));
    fs::create_directory(at("bin"));
    // What it would do is done: the test was built. That it has the command is judged above.
    write("dev", "exit 0");
    for (const char* program : {"my-program", "serve", "batch.sh", "bin/clpeak"}) {
      write(program, "exit 0");
    }
  }
  ~Session() {
    while (!background_.empty()) end(background_.begin()->first);
    // Nothing is left for the next page.
    for (const char* folder : {"/run/qgpu", "/var/lib/qgpu"}) fs::remove_all(folder);
  }

  void run(const Shown& shown) {
    static const std::regex assignments("([A-Z_]+=\\S+ *)+");
    if (std::regex_match(shown.text, assignments)) {
      variables_ += shown.text + "\n";
      return;
    }
    const std::string line = filledIn(shown.text);
    SCOPED_TRACE(shown.place + ": " + line);
    if (line.ends_with('&')) return start(line.substr(0, line.size() - 1));
    static const std::regex endless("qgpuctl( .*)? (top|events .*--follow)");
    const bool ends = !std::regex_search(line, endless);
    Child child(shell(ends ? line : "exec " + line));
    if (!ends) {
      EXPECT_TRUE(eventually([&] { return !child.output().empty() || !child.alive(); }, kPatience));
      child.signal(SIGINT);
    }
    const int status = child.wait(kPatience).value_or(-1);
    const bool findings = status == 3 && line.ends_with("doctor");
    EXPECT_TRUE(status == 0 || findings || (!ends && status == 128 + SIGINT))
        << "exit status " << status << "\n"
        << child.output() << logs();
  }

 private:
  static bool isDaemon(const std::string& program) {
    return program == "qgpu-manager" || program == "qgpu-scheduler";
  }
  std::string at(const std::string& name) const { return dir_.path() + "/" + name; }
  void link(const std::string& from, const std::string& name) const {
    fs::create_directory_symlink(from + "/" + name, at(name));
  }
  void write(const std::string& name, const std::string& script) const {
    std::ofstream(at(name)) << "#!/bin/sh\n" << script << "\n";
    ::chmod(at(name).c_str(), 0755);
  }

  std::vector<std::string> shell(const std::string& line) const {
    return {"sh", "-c",
            variables_ + "cd " + dir_.path() + " && export PATH=$PWD/bin:$PWD/build/bin:$PATH\n" +
                line};
  }

  // TASK, NODE and CARD are those of the cluster or node that runs.
  std::string filledIn(std::string text) const {
    const auto fill = [&](const char* word, const char* socket, const char* list, const char* key) {
      const std::regex place(std::string("\\b") + word + "\\b");
      if (!std::regex_search(text, place)) return;
      Json found;
      EXPECT_TRUE(eventually([&] {
        const Json answer = Json::parse(askSocket(socket, list), nullptr, false);
        if (!answer.is_object() || answer[list].empty()) return false;
        found = answer[list][0][key];
        return true;
      })) << text;
      text = std::regex_replace(text, place,
                                found.is_string() ? found.get<std::string>() : found.dump());
    };
    fill("TASK", "/run/qgpu/scheduler.sock", "tasks", "id");
    fill("NODE", "/run/qgpu/scheduler.sock", "nodes", "name");
    fill("CARD", "/run/qgpu/manager.sock", "cards", "id");
    return text;
  }

  // A daemon that is started again takes the place of the one before; it is waited for.
  void start(const std::string& line) {
    const std::string program = fs::path(shellWords(line).at(0)).filename();
    end(program);
    auto& child = background_[program] = std::make_unique<Child>(shell("exec " + line));
    if (!isDaemon(program)) return;
    const std::string socket = "/run/qgpu/" + program.substr(5) + ".sock";
    const bool serves = eventually(
        [&] { return !askSocket(socket, "status").empty() || !child->alive(); }, kPatience);
    EXPECT_TRUE(serves && child->alive()) << child->output();
  }

  // What was started in the background, where it was: it went well, or ends as it is told to.
  // A daemon is the last to end: a command may still be on its way to it.
  void end(const std::string& program) {
    const auto client = std::find_if(background_.begin(), background_.end(),
                                     [](const auto& one) { return !isDaemon(one.first); });
    if (isDaemon(program) && client != background_.end()) {
      end(std::string(client->first));
      return end(program);
    }
    const auto found = background_.find(program);
    if (found == background_.end()) return;
    const bool lives = found->second->alive();
    if (lives) found->second->signal(SIGTERM);
    const int status = found->second->wait(kPatience).value_or(-1);
    EXPECT_TRUE(status == 0 || (lives && status == 128 + SIGTERM))
        << program << ": exit status " << status << "\n"
        << found->second->output();
    background_.erase(found);
  }

  std::string logs() const {
    std::string all;
    for (const auto& [name, child] : background_) all += name + " said:\n" + child->output();
    return all;
  }

  TempFolder dir_;
  std::string variables_;
  std::map<std::string, std::unique_ptr<Child>> background_;  // by program
};

TEST(Documents, WhatNeedsNothingRuns) {
  if (!whyNotRun.empty()) GTEST_SKIP() << whyNotRun;
  std::size_t ran = 0;
  for (const Page& page : allPages()) {
    Session session;
    for (const Block& block : page.blocks) {
      if (!block.needs.empty()) continue;
      for (const Shown& shown : block.commands) {
        session.run(shown);
        ++ran;
      }
    }
  }
  EXPECT_GT(ran, 20u);
}

// --- the reader of documents ---

TEST(DocumentBlocks, ABlockHasWholeCommandsAndWhatItNeeds) {
  const Page page = readPage("a.md",
                             "# A\n\n<!-- needs: docker, root -->\n```sh\na 'b # c' \\\n  d  # e\n"
                             "# f\ng &\n```\n\n```sh\nh\n```\nSay `i j` or `k`.\n");
  ASSERT_EQ(page.blocks.size(), 2u);
  EXPECT_EQ(page.blocks[0].needs, (std::vector<std::string>{"docker", "root"}));
  ASSERT_EQ(page.blocks[0].commands.size(), 2u);
  EXPECT_EQ(page.blocks[0].commands[0].text, "a 'b # c' d");
  EXPECT_EQ(page.blocks[0].commands[0].place, "a.md:5");
  EXPECT_EQ(page.blocks[0].commands[1].text, "g &");
  EXPECT_TRUE(page.blocks[1].needs.empty());
  ASSERT_EQ(page.spans.size(), 2u);
  EXPECT_EQ(page.spans[0].text, "i j");
  EXPECT_TRUE(page.strays.empty());
}

TEST(DocumentBlocks, CommandsElsewhereAreStrays) {
  const Page page = readPage("a.md",
                             "<!-- needs: root -->\n\nText.\n\n    ./dev test  # a\n"
                             "    program --> manager\n\n```\nqgpuctl tasks\n```\n```sh\nb\n```\n");
  ASSERT_EQ(page.strays.size(), 2u);
  EXPECT_EQ(page.strays[0].place, "a.md:5");
  EXPECT_EQ(page.strays[1].text, "qgpuctl tasks");
  EXPECT_TRUE(page.blocks[0].needs.empty()) << "a marker is for what stands below it";
}

TEST(DocumentBlocks, WordsAreAShells) {
  EXPECT_EQ(shellWords("a  'b c' d\"e f\" '' # g"),
            (std::vector<std::string>{"a", "b c", "de f", ""}));
}

// Starts itself again on its own machine: what a process runs from is seen as it was before.
const testing::Before before("documents", [](char** argv) -> std::string {
  constexpr const char* kEntered = "QGPU_TEST_ENTERED";  // empty, or why not
  if (const char* entered = std::getenv(kEntered)) {
    whyNotRun = entered;
    return {};
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  ::setenv(kEntered, enterOwnMachine().c_str(), 1);
  ::execv(self.c_str(), argv);
  throw std::system_error(errno, std::generic_category(), self);
});

}  // namespace
}  // namespace qgpu::e2e::documents_test
