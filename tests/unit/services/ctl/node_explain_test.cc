// Why a task of a node is where it is, what it gets, and what holds it.

#include "services/ctl/node_explain.h"

#include <gtest/gtest.h>

#include "services/ctl/answers/client.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl::node_explain_test {
namespace {

std::string tasks(const std::string& more, int usedMs, int heldMs) {
  return R"({"ok":true,"tasks":[{"id":7,"name":"train","class":"ordinary","card":"GPU-a",)"
         R"("share_permille":300,"mem_bytes":2147483648,"processes":1,"used_ns":)" +
         std::to_string(millis(usedMs).value) + R"(,"held_ns":)" +
         std::to_string(millis(heldMs).value) + more +
         R"(},{"id":9,"name":"serve","class":"online","card":"GPU-a"}]})";
}

// What is said of task 7 a second after it had used and waited for nothing.
std::string explained(const std::string& task, const std::string& card, int usedMs = 250,
                      int heldMs = 500) {
  const Answer cards(R"({"ok":true,"cards":[{"id":"GPU-a","index":3,"node":"here","tasks":2,)"
                     R"("mem_bytes":17179869184,"mem_bound_bytes":4294967296,)"
                     R"("share_bound_permille":300)" +
                     card + "}]}");
  const Answer before(tasks(task, 0, 0)), now(tasks(task, usedMs, heldMs));
  const Answer answer(
      explainOnNode(7, {before.root(), cards.root()}, {now.root(), cards.root()}, seconds(1)));
  const auto view = viewOf(Shown::Explanation, answer);
  EXPECT_TRUE(view.ok()) << jsonOf(answer.root());
  return view ? *view : "";
}

TEST(NodeExplain, SaysWhereATaskIsWhatItMayHaveAndWhatItGot) {
  EXPECT_EQ(
      explained(R"(,"state":"suspended","note":"a note")", R"(,"policy":"best-effort","holder":9)"),
      "task 7 (train, ordinary) is on gpu-3 of here: it asked for 2 GiB and 30% of a card, "
      "and that had room\n"
      "  gpu-3 is shared by best-effort between 2 task(s), which have 4 GiB of its 16 GiB and "
      "30% of its time\n"
      "  best-effort: as much as each other task that wants the card\n"
      "  in the last 1 s it had 25% of the card, and wanted it without having it for 50%\n"
      "  it waits for its turn: task 9 (serve, online) has the card\n"
      "  a note\n");
}

TEST(NodeExplain, SaysWhatEachPolicyPromises) {
  const auto says = [](const std::string& policy, const char* promise) {
    const std::string card = R"(,"policy":")" + policy + "\"";
    return explained(R"(,"state":"idle")", card).find(policy + ": " + promise) != std::string::npos;
  };
  EXPECT_TRUE(says("fixed-share", "at most 30% of the card"));
  EXPECT_TRUE(says("burst-share", "at least 30% of the card while it wants it"));
  const std::string newer = explained(R"(,"state":"idle")", R"(,"policy":"later-share")");
  EXPECT_NE(newer.find("of the card what later-share gives it"), std::string::npos) << newer;
}

TEST(NodeExplain, SaysForEachStateWhatHoldsTheTask) {
  const auto last = [](const std::string& task, const std::string& card = "") {
    const std::string text = explained(task, R"(,"policy":"burst-share")" + card);
    const std::size_t end = text.size() - 1;
    return text.substr(text.rfind('\n', end - 1) + 3, end - text.rfind('\n', end - 1) - 3);
  };
  EXPECT_EQ(last(R"(,"state":"running")"), "it has the card now");
  EXPECT_EQ(last(R"(,"state":"idle")"), "it wants nothing of the card now");
  EXPECT_EQ(last(R"(,"state":"suspending")"), "its slice is over, and what it launched is ending");
  EXPECT_EQ(last(R"(,"state":"ready")"), "it waits for its turn: nobody has the card yet");
  EXPECT_EQ(last(R"(,"state":"ready")", R"(,"online_active":true)"),
            "it waits for its turn: online tasks have the card");
  EXPECT_EQ(last(R"(,"state":"ready","evicting":true)"),
            "it is to end: its processes launch nothing more");
}

TEST(NodeExplain, ATaskThatIsNotThereIsRefused) {
  const Answer none(R"({"ok":true,"tasks":[],"cards":[]})");
  const Answer answer(
      explainOnNode(7, {none.root(), none.root()}, {none.root(), none.root()}, seconds(1)));
  ASSERT_FALSE(answer.status().ok());
  EXPECT_EQ(answer.status().error().code, ErrorCode::NotFound);
}

}  // namespace
}  // namespace qgpu::ctl::node_explain_test
