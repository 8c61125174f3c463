// deploy/Dockerfile without an engine: each file that it copies is one that the build installs or
// the tree has, each library that its programs link comes with a package that it installs, and the
// rules that keep an image the same tomorrow; units start what is installed.

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sstream>
#include <unistd.h>

#include "tests/deploy/documents.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::image_test {
namespace {

using testing::Finished;
using testing::readText;
using testing::shell;
using testing::sourcePath;
using testing::TempFolder;

namespace fs = std::filesystem;

struct Instruction {
  std::string word;  // FROM, RUN, ...
  std::vector<std::string> arguments;
};

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

std::vector<Instruction> readDockerfile(const std::string& text) {
  std::vector<Instruction> out;
  std::istringstream in(text);
  std::string line;
  std::string whole;
  while (std::getline(in, line)) {
    if (line.starts_with('#')) continue;
    const bool goesOn = line.ends_with('\\');
    whole += goesOn ? line.substr(0, line.size() - 1) : line;
    if (goesOn) continue;
    auto parts = words(whole);
    whole.clear();
    if (parts.empty()) continue;
    Instruction instruction{parts[0], {parts.begin() + 1, parts.end()}};
    out.push_back(std::move(instruction));
  }
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " ") + part;
  return out;
}

struct From {
  std::string platform;  // empty where it is the image's own
  std::string base;
  std::string stage;
};

From readFrom(const Instruction& step) {
  From from;
  std::vector<std::string> rest;
  for (const std::string& word : step.arguments) {
    if (word.starts_with("--platform=")) {
      from.platform = word.substr(11);
    } else {
      rest.push_back(word);
    }
  }
  from.base = rest.at(0);
  if (rest.size() == 3) from.stage = rest[2];
  return from;
}

// What must not be in a Dockerfile of ours; a line for each thing that is.
std::vector<std::string> lint(const std::vector<Instruction>& file) {
  std::vector<std::string> wrong;
  std::set<std::string> stages;
  std::set<std::string> defaults;  // of ARG: names whose value is a pinned image
  const auto pinned = [](const std::string& image) {
    const std::size_t tag = image.rfind(':');
    return image.find('@') != std::string::npos ||
           (tag != std::string::npos && image.find_first_of("0123456789", tag) != tag + 0 &&
            std::any_of(image.begin() + static_cast<std::ptrdiff_t>(tag), image.end(),
                        [](char c) { return c >= '0' && c <= '9'; }));
  };
  for (const Instruction& step : file) {
    const std::string all = joined(step.arguments);
    if (step.word == "ARG") {
      const std::size_t equals = all.find('=');
      if (equals != std::string::npos && pinned(all.substr(equals + 1))) {
        defaults.insert("${" + all.substr(0, equals) + "}");
      }
    } else if (step.word == "FROM") {
      const From from = readFrom(step);
      const std::string& base = from.base;
      if (!stages.contains(base) && !defaults.contains(base) && !pinned(base)) {
        wrong.push_back("FROM " + base + ": not a release that stays the same");
      }
      if (!from.platform.empty() && !from.platform.starts_with("${")) {
        wrong.push_back("FROM " + base + ": of " + from.platform + " whatever is built for");
      }
      if (!from.stage.empty()) stages.insert(from.stage);
    } else if (step.word == "ADD") {
      wrong.push_back("ADD " + all + ": it fetches and unpacks; COPY does not");
    } else if (step.word == "RUN") {
      const bool installs = all.find("apt-get install") != std::string::npos;
      if (installs && all.find("--no-install-recommends") == std::string::npos) {
        wrong.push_back("apt-get install without --no-install-recommends");
      }
      if (installs && all.find("rm -rf /var/lib/apt/lists/*") == std::string::npos) {
        wrong.push_back("apt's lists stay in the layer");
      }
      for (const char* fetch : {"curl ", "wget ", "http://", "https://"}) {
        if (all.find(fetch) != std::string::npos) wrong.push_back(std::string("RUN has ") + fetch);
      }
    }
  }
  return wrong;
}

std::vector<Instruction> ours() {
  return readDockerfile(readText(sourcePath("deploy/Dockerfile")));
}

TEST(Dockerfile, KeepsTheRules) {
  for (const std::string& wrong : lint(ours())) ADD_FAILURE() << wrong;
  std::set<std::string> targets;
  for (const Instruction& step : ours()) {
    if (step.word == "FROM") targets.insert(readFrom(step).stage);
  }
  EXPECT_TRUE(targets.contains("scheduler"));
  EXPECT_TRUE(targets.contains("manager"));
}

// A compiler under qemu takes hours, and what ships must be of the machine that it is for.
TEST(Dockerfile, RunsCompilersAloneOnTheMachineThatBuilds) {
  for (const Instruction& step : ours()) {
    if (step.word != "FROM") continue;
    const From from = readFrom(step);
    if (!from.base.starts_with("${")) {
      EXPECT_EQ(from.platform, "") << from.stage << " goes on from a stage that has one";
    } else {
      EXPECT_EQ(from.platform, from.stage == "build" ? "${BUILDPLATFORM}" : "${TARGETPLATFORM}");
    }
  }
}

TEST(Dockerfile, BreaksARuleWhereItWould) {
  EXPECT_EQ(lint(readDockerfile("FROM debian\n")).size(), 1u);
  EXPECT_EQ(lint(readDockerfile("FROM debian:latest\n")).size(), 1u);
  EXPECT_EQ(lint(readDockerfile("ARG B=debian:12.11-slim\nFROM ${B} AS x\nFROM x\n")).size(), 0u);
  EXPECT_EQ(lint(readDockerfile("FROM --platform=linux/arm64 x:1\n")).size(), 1u);
  EXPECT_EQ(lint(readDockerfile("FROM --platform=${BUILDPLATFORM} x:1 AS y\nFROM y\n")).size(), 0u);
  EXPECT_EQ(lint(readDockerfile("ADD https://x/y /z\n")).size(), 1u);
  EXPECT_EQ(lint(readDockerfile("RUN apt-get \\\n install x\n")).size(), 2u);
  EXPECT_EQ(lint(readDockerfile("RUN curl -O https://x\n")).size(), 2u);
}

// What `./dev install` puts below DESTDIR=/out with PREFIX=/usr, as absolute paths, in `folder`.
std::set<std::string> installed(const TempFolder& folder) {
  const Finished result =
      shell(std::string(QGPU_CMAKE) + " --install " + QGPU_BUILD + " --prefix /usr",
            {{"DESTDIR", folder.path()}});
  EXPECT_EQ(result.status, 0) << result.output;
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) files.insert(entry.path().string().substr(folder.path().size()));
  }
  return files;
}

// Of the files that a stage copies: where the image has it, and the path that COPY names.
struct Copied {
  std::string stage;
  std::string target;
  std::string source;  // below DESTDIR where built, else of the tree
  bool built = false;
};

std::vector<Copied> copies() {
  std::vector<Copied> all;
  std::string stage;
  for (const Instruction& step : ours()) {
    if (step.word == "FROM") stage = step.arguments.back();
    if (step.word != "COPY" || step.arguments.at(0) == ".") continue;
    const bool built = step.arguments[0] == "--from=build";
    for (std::size_t i = built ? 1 : 0; i + 1 < step.arguments.size(); ++i) {
      const std::string& source = step.arguments[i];
      const std::string target = step.arguments.back() + fs::path(source).filename().string();
      EXPECT_TRUE(!built || source.starts_with("/out/")) << source;
      all.push_back({stage, target, built ? source.substr(4) : source, built});
    }
  }
  return all;
}

TEST(Dockerfile, CopiesWhatTheBuildInstallsAndTheTreeHas) {
  const TempFolder folder;
  const auto files = installed(folder);
  std::map<std::string, std::set<std::string>> stages;
  for (const Copied& one : copies()) {
    stages[one.stage].insert(one.target);
    EXPECT_TRUE(one.built ? files.contains(one.source) : fs::exists(sourcePath(one.source)))
        << one.source;
  }
  EXPECT_TRUE(stages["scheduler"].contains("/usr/bin/qgpu-scheduler"));
  EXPECT_TRUE(stages["manager"].contains("/usr/bin/qgpu-manager"));
  EXPECT_TRUE(stages["manager"].contains("/usr/bin/install.sh"));
  EXPECT_TRUE(stages["manager"].contains("/usr/lib/libqgpu.so"));
  const std::set<std::string> notForNodes = {"/usr/bin/qgpu-demo", "/usr/bin/qgpu-work"};
  for (const std::string& file : files) {
    if (!file.starts_with("/usr/bin/") || notForNodes.contains(file)) continue;
    EXPECT_TRUE(stages["manager"].contains(file) || stages["scheduler"].contains(file))
        << file << " is installed, and in neither image";
  }
}

TEST(Units, StartWhatTheBuildInstalls) {
  const TempFolder folder;
  const auto files = installed(folder);
  std::set<std::string> started;
  for (const char* daemon : {"qgpu-manager", "qgpu-scheduler"}) {
    std::istringstream unit(
        readText(folder / (std::string("usr/lib/systemd/system/") + daemon + ".service")));
    for (std::string line; std::getline(unit, line);) {
      if (!line.starts_with("ExecStart")) continue;
      const std::size_t path = line.find('/');
      ASSERT_NE(path, std::string::npos) << line;
      started.insert(words(line.substr(path)).at(0));
    }
  }
  EXPECT_TRUE(started.contains("/usr/bin/qgpu-manager"));
  EXPECT_TRUE(started.contains("/usr/lib/qgpu/nvidia-nodes.sh"));
  for (const std::string& program : started) {
    EXPECT_TRUE(files.contains(program)) << program;
    EXPECT_EQ(::access((folder.path() + program).c_str(), X_OK), 0) << program;
  }
}

// Packages that apt-get install is told, with those that they depend on.
std::set<std::string> packagesOfTheImages() {
  std::set<std::string> known;
  std::vector<std::string> ask;
  for (const Instruction& step : ours()) {
    const std::string all = joined(step.arguments);
    const std::size_t at = all.find("--no-install-recommends");
    if (step.word != "RUN" || at == std::string::npos) continue;
    for (const std::string& word : words(all.substr(at + 23, all.find("&&", at) - at - 23))) {
      ask.push_back(word);
    }
  }
  EXPECT_FALSE(ask.empty());
  while (!ask.empty()) {
    const std::string package = ask.back();
    ask.pop_back();
    if (!known.insert(package).second) continue;
    const Finished depends = shell("dpkg-query -W -f '${Depends}' " + package);
    EXPECT_EQ(depends.status, 0) << package << " is in the Dockerfile and not installed here: "
                                 << depends.output;
    std::istringstream list(depends.output);
    for (std::string one; std::getline(list, one, ',');) {
      const auto name = words(one);
      if (!name.empty()) ask.push_back(name[0].substr(0, name[0].find(':')));
    }
  }
  return known;
}

std::set<std::string> librariesOf(const std::string& program) {
  std::set<std::string> paths;
  const Finished linked = shell("ldd " + program);
  EXPECT_EQ(linked.status, 0) << linked.output;
  std::istringstream in(linked.output);
  for (std::string line; std::getline(in, line);) {
    const std::size_t arrow = line.find("=> /");
    if (arrow == std::string::npos) continue;
    paths.insert(line.substr(arrow + 3, line.find(' ', arrow + 3) - arrow - 3));
  }
  return paths;
}

// The packages that have these files. dpkg-query reads every package's list each time that it is
// asked, so it is asked once. It knows a file by the path that its package has, before /lib became
// a link to /usr/lib.
std::map<std::string, std::string> ownersOf(const std::set<std::string>& files) {
  std::map<std::string, std::string> fileOf;  // by each path that it may be known by
  std::string paths;
  for (const std::string& file : files) {
    const std::string real = fs::canonical(file).string();
    for (const std::string& path : {file, real, real.substr(real.starts_with("/usr") ? 4 : 0)}) {
      if (fileOf.emplace(path, file).second) paths += " " + path;
    }
  }
  // It ends with 1, since none has all spellings.
  std::istringstream answers(shell("dpkg-query -S" + paths + " 2>/dev/null").output);
  std::map<std::string, std::string> owners;
  for (std::string line; std::getline(answers, line);) {
    const auto file = fileOf.find(line.substr(line.rfind(' ') + 1));
    if (file != fileOf.end()) owners.emplace(file->second, line.substr(0, line.find(':')));
  }
  return owners;
}

TEST(Dockerfile, InstallsTheLibrariesThatItsProgramsLink) {
  const TempFolder folder;
  const auto packages = packagesOfTheImages();
  std::set<std::string> libraries;
  installed(folder);
  for (const Copied& one : copies()) {
    if (!one.built) continue;
    const auto linked = librariesOf(folder.path() + one.source);
    libraries.insert(linked.begin(), linked.end());
  }
  EXPECT_GE(libraries.size(), 5u);
  const auto owners = ownersOf(libraries);
  for (const std::string& library : libraries) {
    const auto owner = owners.find(library);
    ASSERT_NE(owner, owners.end()) << library << " is in no package";
    EXPECT_TRUE(packages.contains(owner->second))
        << library << " needs the package " << owner->second;
  }
}

// From archives or shared, never both: such a process would have KJ twice.
TEST(Programs, HaveCapnProtoOnce) {
  const TempFolder folder;
  installed(folder);
  for (const Copied& one : copies()) {
    if (!one.built) continue;
    std::string shared;
    for (const std::string& library : librariesOf(folder.path() + one.source)) {
      const std::string name = fs::path(library).filename();
      if (name.starts_with("libkj") || name.starts_with("libcapnp")) shared += " " + name;
    }
    EXPECT_TRUE(shared.empty() || shared.find(" libcapnp-rpc") != std::string::npos)
        << one.source << " has archives of Cap'n Proto, and shared:" << shared;
  }
}

}  // namespace
}  // namespace qgpu::image_test
