// Completion by the parser, by each shell that there is a script for, and with names that a daemon
// knows; and the manual page, read by the program that formats it.

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "services/ctl/options.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::ctl {
namespace {

using Texts = std::vector<std::string>;

Completion completed(Texts words) {
  words.insert(words.begin(), "complete");
  return std::get<Options>(parseOptions(std::move(words))).completion;
}

Texts texts(const Completion& completion) {
  Texts all;
  for (const Completion::Word& word : completion.words) all.push_back(word.text);
  return all;
}

// What a shell's command writes to stdout and stderr.
std::string outputOf(const std::string& command) {
  return testing::shell(command).output;
}

std::string quoted(const std::string& script) {
  return "'" + script + "'";  // the scripts below have no quotes of that kind
}

// Where `qgpuctl` is the program under test.
const std::string kPath =
    "PATH=" + std::string(QGPUCTL).substr(0, std::string(QGPUCTL).rfind('/')) + ":$PATH ";

TEST(Completion, OffersCommandsOptionsAndChoicesByWhatWasTyped) {
  EXPECT_EQ(texts(completed({"un"})), (Texts{"uncordon"}));
  EXPECT_EQ(texts(completed({"run", "--cl"})), (Texts{"--class", "--cluster"}));
  EXPECT_EQ(texts(completed({"run", "--class", "o"})), (Texts{"online", "offline", "ordinary"}));
  EXPECT_EQ(texts(completed({"run", "--class=of"})), (Texts{"--class=offline"}));
  EXPECT_EQ(texts(completed({"run", "--class", "=", "of"})), (Texts{"offline"})) << "as bash cuts";
  EXPECT_EQ(texts(completed({"run", "--class", "="})), (Texts{"online", "offline", "ordinary"}));
  EXPECT_EQ(texts(completed({"what-if", "p"})), (Texts{"place"}));
  EXPECT_EQ(texts(completed({"help", "dr"})), (Texts{"drain"}));
  EXPECT_EQ(texts(completed({"policy", "0", "f"})), (Texts{"fixed-share", "fs"}));
  EXPECT_EQ(texts(completed({"-o", "json", "tas"})), (Texts{"tasks"}));
  EXPECT_EQ(texts(completed({"events", "--kind", "task-at"})), (Texts{"task-attached"}));
  EXPECT_EQ(texts(completed({"events", "--kind=memory-"})), (Texts{"--kind=memory-refused"}));
  EXPECT_EQ(texts(completed({"nothing", "of", "ours", "x"})), Texts{});
  EXPECT_GT(completed({}).words.size(), 20u) << "every command";
}

TEST(Completion, SaysWhatIsKnownElsewhere) {
  using More = Completion::More;
  EXPECT_EQ(completed({"end", ""}).more, More::Tasks);
  EXPECT_EQ(completed({"cordon", ""}).more, More::Targets);
  EXPECT_EQ(completed({"events", "--task", ""}).more, More::Tasks);
  EXPECT_EQ(completed({"events", "--card", ""}).more, More::Cards);
  EXPECT_EQ(completed({"policy", ""}).more, More::Cards);
  EXPECT_EQ(completed({"submit", "--node", ""}).more, More::Nodes);
  EXPECT_EQ(completed({"--socket", ""}).more, More::Files);
  EXPECT_EQ(completed({"run", "--memory", "2", ""}).more, More::Programs);
  EXPECT_EQ(completed({"run", "--", "py"}).more, More::Programs);
  EXPECT_EQ(completed({"run", "--", "python3", ""}).more, More::Files);
  const Completion asked = completed({"--server", "there:1", "-c", "end", "1"});
  EXPECT_EQ(asked.globals, (Texts{"--server", "there:1", "-c"}));
  EXPECT_EQ(asked.typed, "1");
}

TEST(Completion, BashReadsItsScript) {
  const std::string script =
      "source <(qgpuctl completion bash); complete -p qgpuctl; "
      "COMP_WORDS=(qgpuctl run --cl); COMP_CWORD=2; _qgpuctl; "
      "echo \"${COMPREPLY[@]}\"; "
      "COMP_WORDS=(qgpuctl --socket /et); COMP_CWORD=2; _qgpuctl; "
      "echo \"${COMPREPLY[@]}\"";
  EXPECT_EQ(outputOf(kPath + "bash -c " + quoted(script)),
            "complete -F _qgpuctl qgpuctl\n--class --cluster\n/etc\n");
}

TEST(Completion, ZshReadsItsScript) {
  const std::string script =
      "compdef() { echo \"compdef $@\"; }; _describe() { print -l -- \"${(@P)2}\"; }; "
      "source <(qgpuctl completion zsh); words=(qgpuctl run --cl); CURRENT=3; _qgpuctl";
  EXPECT_EQ(outputOf(kPath + "zsh -fc " + quoted(script)),
            "compdef _qgpuctl qgpuctl\n--class:online, offline or ordinary (default)\n"
            "--cluster:the cluster, where both could be meant\n");
}

TEST(Completion, FishReadsItsScript) {
  const std::string script = "qgpuctl completion fish | source; complete -C \"qgpuctl run --cl\"";
  const testing::TempFolder home;  // where it keeps what was typed
  EXPECT_EQ(outputOf(kPath + "HOME=" + home / "" + " fish --no-config -c " + quoted(script)),
            "--class\tonline, offline or ordinary (default)\n"
            "--cluster\tthe cluster, where both could be meant\n");
}

TEST(ManPage, IsFormattedWithoutAComplaintAndNamesEveryCommand) {
  EXPECT_EQ(outputOf(kPath + "sh -c " + quoted("qgpuctl man | groff -man -ww -Tascii >/dev/null")),
            "");
  const std::string page =
      outputOf(kPath + "sh -c " + quoted("qgpuctl man | groff -man -Tascii -P-c | col -bx"));
  for (const std::string& command : texts(completed({}))) {
    EXPECT_NE(page.find("\n   " + command), std::string::npos) << command;
  }
  EXPECT_NE(page.find("--class {online,offline,ordinary}"), std::string::npos) << page;
}

}  // namespace
}  // namespace qgpu::ctl
