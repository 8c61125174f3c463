#pragma once
// Answers to questions of clients: the node, its cards, its tasks, its events. What cards and task
// actors know is asked of them for each question; whoever does not answer in time is shown as in
// its last report. Answers are written when they leave, from what is known then.
//
// Who calls: NodeRequests (questions), NodeActor (reports and the tick that ends the wait for
// them). Kept here: C2 (each question is answered within NodeOptions.gatherMax), C5 (questions that
// wait, and what is asked of one actor, are bounded).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "actors/node/bindings.h"
#include "actors/node/node_cards.h"

namespace qgpu {

class NodeReports {
 public:
  static constexpr std::size_t kGathersMax = 32;  // questions that wait for reports
  static constexpr std::size_t kAsksPerPeer = 8;  // report questions that may pile up at an actor
  // Reports that may be on their way, of all questions: one that found no room in the mailbox would
  // be waited for until gatherMax.
  static constexpr std::size_t kAsksAtOnce = 256;

  NodeReports(NodeContext& node, const NodeNumbers& numbers, NodeCards& cards, Bindings& bindings)
      : node_(node), numbers_(numbers), cards_(cards), bindings_(bindings) {
    if (node.peers().member != ActorId::kNobody) standing_ = "no scheduler";
  }

  // Since then `uptime` counts.
  void start(Nanos now) { startedAt_ = now; }
  // How the node stands with its scheduler, in the member's words: a word, a colon, a sentence. A
  // change of the word is an event.
  void setStanding(const std::string& standing);

  // Answers it, now or once the reports are there; false where it is no question. All may ask.
  bool onQuestion(const Asker& asker, schema::Request::Reader request, Turn& turn);
  enum class About : std::uint8_t { Cards, Tasks };
  // Overloaded where kGathersMax questions wait already.
  void gather(const Asker& asker, About about, Turn& turn);

  // --- reports ---
  void onCardReport(schema::CardReport::Reader report);
  void onTaskReport(schema::TaskReport::Reader report);
  void onGatherDue(std::uint64_t gather);

 private:
  struct Gather {  // a question that waits for reports
    Asker asker;
    About about = About::Cards;
    std::set<std::size_t> cards;  // that were asked and have not answered yet
    std::set<std::uint64_t> tasks;
    std::size_t nextCard = 0;    // to be asked
    std::uint64_t nextTask = 0;  // the same: the first that is bound, from this number on
  };

  void info(const Asker& asker);
  void events(const Asker& asker, std::uint64_t since);
  // The card itself answers: what it tells is long, and nobody else needs it. NotFound; Overloaded
  // where kAsksPerPeer questions wait for that card already.
  void trace(const Asker& asker, schema::TraceQuery::Reader query);
  bool ask(ActorId peer, std::uint64_t gather);
  // Asks who was not asked yet, as far as kAsksAtOnce permits, and answers what is whole.
  void goOn();
  // True where nobody is left to be asked; `room` for so many.
  bool askRest(std::uint64_t id, Gather& gather, std::size_t& room);
  void answer(const Gather& gather);
  void writeTask(std::uint64_t task, const Binding& binding,
                 schema::TaskInfo::Builder builder) const;

  NodeContext& node_;
  const NodeNumbers& numbers_;
  NodeCards& cards_;
  Bindings& bindings_;
  std::optional<Nanos> startedAt_;
  std::string standing_ = "none";
  std::map<std::uint64_t, Gather> gathers_;
  std::uint64_t lastGather_ = 0;
};

}  // namespace qgpu
