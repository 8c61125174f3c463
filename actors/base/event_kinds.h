#pragma once
// The catalogue of events: each kind of what a node or a scheduler tells (`qgpuctl events`), who
// tells it, what it means, and what a person does about it. docs/reference/events.md is made of it.
//
// A kind is written as its name where it is told, and a name that is not in the catalogue does not
// compile. So nothing is told that is not explained. Names are read by scripts of others: they
// stay. Of the node's own, "task-" and "card-" before a name make the member look at its tasks or
// cards again (actors/member/member_view.cc).

#include <cstdint>
#include <string_view>

namespace qgpu {

enum class EventTeller : std::uint8_t { Node, Scheduler, Both };

struct EventKindEntry {
  std::string_view name;
  EventTeller teller;
  std::string_view meaning;
  std::string_view then;  // what a person does; empty: nothing
};

inline constexpr EventKindEntry kEventKinds[] = {
    {"node-started", EventTeller::Node,
     "The manager serves again. The text has its version and its incarnation.", ""},
    {"scheduler-started", EventTeller::Scheduler,
     "The scheduler serves again. The text has its version and its term.", ""},
    {"gathers", EventTeller::Scheduler,
     "The store was restored or is made anew: nodes have the fence time to say what they hold "
     "before anything is placed.",
     ""},
    {"gathered", EventTeller::Scheduler,
     "That time is over. The text has in how many tasks the store differed from the nodes.", ""},
    {"incarnation-raised", EventTeller::Node,
     "A program had met a later manager than the database knows: the database is an older copy.",
     "Find out who put an old database there."},
    {"storage-failed", EventTeller::Both,
     "The database takes nothing. What is stored holds, new changes are refused.",
     "Make room on the disk, or mend it; service resumes by itself."},
    {"storage-ok", EventTeller::Both, "The database takes changes again.", ""},
    {"permitted", EventTeller::Both,
     "Somebody had the daemon do something that changes no task: a snapshot, another log level.",
     ""},
    {"watch-dropped", EventTeller::Both,
     "The last event of a watch over RPC that lagged too far behind; nobody else is told.",
     "Watch again from the last number; `qgpuctl events --follow` does."},
    {"cluster", EventTeller::Node, "How this node stands with its scheduler has changed.",
     "Where it stays without a session: the text says why; look at address and certificates."},

    {"task-bound", EventTeller::Both,
     "A task has its cards; on a scheduler: its node holds it, and its group has started.", ""},
    {"task-attached", EventTeller::Node, "The first process of a task attached.", ""},
    {"task-gave-no-room", EventTeller::Node,
     "Memory of its card was refused to another task, which may have it, and this one, whose "
     "memory "
     "may leave the card, gave none in time: it is ended. The text names both.",
     "Where it comes again: less overcommit, or work of it in shorter pieces."},
    {"task-exited", EventTeller::Node, "The last process of a task left. The task itself may stay.",
     ""},
    {"task-evicting", EventTeller::Node,
     "A task is to end: its processes launch nothing more, and are killed after a grace.", ""},
    {"task-ended", EventTeller::Both, "A task is over; its share and its memory are free.", ""},
    {"task-lost", EventTeller::Node,
     "A task ended at the manager's start, since its card is not on this node any more.",
     "Look for the card: `qgpuctl doctor`."},
    {"task-taken-over", EventTeller::Node,
     "The database was new, and a task whose programs still run was taken over.", ""},
    {"task-not-taken-over", EventTeller::Node,
     "The same of a task that was ending, and whose room another one has: it ends.", ""},
    {"task-outlived", EventTeller::Node,
     "A task had ended before the manager did, and its processes had not. They are told to go.",
     ""},
    {"task-fault", EventTeller::Node,
     "What a program reports of itself can't be: it lies, or scribbled over its report page.",
     "Look at the program; `qgpuctl evict` ends its task."},
    {"task-stopped", EventTeller::Node,
     "All processes of a task are stopped with work under way. It counts as idle; an online one "
     "keeps its card.",
     "Let them go on, or end them: a signal, a debugger or a frozen cgroup stops them."},
    {"task-unattached", EventTeller::Node,
     "No process of a task has attached for a minute: it uses no card, or does so without quota "
     "and turns.",
     "See what keeps the library out: no loader of glibc, or an environment of its own."},
    {"task-unheld", EventTeller::Node,
     "A process of a task has a card open and is not attached. `--strict` ends it.",
     "The same; or start the manager with `--strict`."},
    {"guard-refused", EventTeller::Node,
     "The kernel kept a process of a task from a card: it has not attached, or the card is another "
     "task's. What comes within ten seconds is told once; the metric counts each.",
     "See what keeps the library out: no loader of glibc, an environment of its own, or intent."},
    {"memory-refused", EventTeller::Node,
     "Allocations of a task failed, since they pass its quota.",
     "Give it more: `qgpuctl run --memory`, in a pod `qgpu-memory`."},

    {"suspend-doubted", EventTeller::Node,
     "A task's channels could not be taken off its card: it is held by its gate alone from now on.",
     "Others may wait longer for the card. End the task where that matters."},
    {"suspend-undone", EventTeller::Node,
     "The driver put a held task's channels on again by itself, three times in one hold.",
     "`--suspend=gate` of the manager does without `rm`."},
    {"card-suspend-lost", EventTeller::Node,
     "A card does not take `rm` any more: all of its tasks are held by their gates.",
     "`qgpuctl cards` says why. A start of the manager tries it again."},
    {"driver-unknown", EventTeller::Node,
     "qgpu does not know the calls of the NVIDIA driver that a card has. Its tasks' memory counts "
     "at CUDA's calls alone, they are held by their gates, and the guard has no cap of memory. It "
     "is told of each card at each start of the manager.",
     "Install a driver that qgpu knows, or a qgpu that knows this one; until then the quotas of a "
     "card should leave room on it."},
    {"card-cordoned", EventTeller::Node,
     "A card takes no new tasks: a person said so, or it is ill (the log has `card-ill`).",
     "Once it is well: `qgpuctl uncordon CARD`."},
    {"card-uncordoned", EventTeller::Node, "A card takes tasks again.", ""},
    {"card-draining", EventTeller::Node, "A card takes no new tasks, and those on it end.",
     "Afterwards: `qgpuctl uncordon CARD`."},
    {"report-kept", EventTeller::Node,
     "A report of what holds on a card was made, or put elsewhere. The text has where it lies.",
     ""},
    {"card-report", EventTeller::Node,
     "The newest report of a card was read: it holds, or the text says why it does not.",
     "Where it does not: `qgpuctl prove --card CARD`, while the card has no tasks."},
    {"policy-changed", EventTeller::Node, "Cards are shared in another way from now on.", ""},

    {"stood-down", EventTeller::Scheduler,
     "A later term was seen: another scheduler acts, or acted on a newer copy of this database.",
     "Run one scheduler for a cluster, on the newest database."},
    {"node-joined", EventTeller::Scheduler, "A node said hello. The text has its version.", ""},
    {"node-alive", EventTeller::Scheduler, "A suspect node beats again.", ""},
    {"node-disconnected", EventTeller::Scheduler,
     "A node's connection is over. Its tasks run on; it is lost after the fence time.", ""},
    {"node-suspect", EventTeller::Scheduler,
     "A node's lease ran out: it gets nothing new, and binds nothing new.",
     "Look at the node and at the network."},
    {"node-lost", EventTeller::Scheduler,
     "A node was not heard of for the fence time. What it held is placed elsewhere.",
     "Look at the node; it joins again by itself."},
    {"cordoned", EventTeller::Scheduler, "A node or card gets no new tasks.",
     "Later: `qgpuctl --cluster uncordon NODE`."},
    {"uncordoned", EventTeller::Scheduler, "A node or card gets tasks again.", ""},
    {"draining", EventTeller::Scheduler,
     "A node or card gets no new tasks, and those on it move, or end when the time is over.", ""},
    {"drained", EventTeller::Scheduler, "Nothing is left on what is drained.",
     "It may be taken away now."},
    {"drain-timed-out", EventTeller::Scheduler,
     "The time of a drain is over: what is left there ends.", ""},

    {"task-submitted", EventTeller::Scheduler, "A task was taken on, and is placed or waits.", ""},
    {"task-waits", EventTeller::Scheduler,
     "A task fits nowhere now. The text says what is nearest.",
     "`qgpuctl explain TASK` says what would help."},
    {"task-adopted", EventTeller::Scheduler,
     "A node that joined holds a task that it bound by itself, or of which the store did not know: "
     "it is counted, and runs on.",
     ""},
    {"task-refused", EventTeller::Scheduler,
     "A node did not take a task. It is placed elsewhere, or waits.",
     "Where it comes again: the node's own events."},
    {"assume-expired", EventTeller::Scheduler,
     "A node has not confirmed a task in time. It is placed again.",
     "Where it comes again: look at the node."},
    {"task-evicts", EventTeller::Scheduler,
     "Offline tasks end, since a task that may evict gets their room.", ""},
    {"task-deleted", EventTeller::Scheduler, "Somebody ended a task.", ""},
    {"task-dropped", EventTeller::Scheduler, "A task ended before it was bound.", ""},
    {"token-created", EventTeller::Scheduler, "Somebody made a token by which a machine may join.",
     ""},
    {"token-revoked", EventTeller::Scheduler, "A token is taken back.", ""},
    {"join-granted", EventTeller::Scheduler,
     "A machine showed a token and got the certificate of that node.",
     "If nobody joined it: cordon the node, and find out who had the token."},
    {"join-refused", EventTeller::Scheduler,
     "Somebody showed a token that is none, or a wrong one. The text has what is left of its "
     "tries.",
     "Where it comes again: see who reaches the address of `--join`."},
    {"priority-changed", EventTeller::Scheduler, "Ordinary tasks are placed by another score.", ""},
};

// One of them, as its name.
class EventKind {
 public:
  // NOLINTNEXTLINE: a literal is a kind wherever one is told.
  consteval EventKind(const char* name) : name_(entryNamed(name).name.data()) {}

  constexpr const char* name() const { return name_; }
  friend constexpr bool operator==(EventKind kind, std::string_view name) {
    return name == kind.name_;
  }

 private:
  static void isNoKind();  // without a body: who comes here is not compiled

  static consteval const EventKindEntry& entryNamed(std::string_view name) {
    for (const EventKindEntry& entry : kEventKinds) {
      if (entry.name == name) return entry;
    }
    isNoKind();
    return kEventKinds[0];
  }

  const char* name_;  // ends with a zero: the catalogue has literals
};

// What the attach room tells the node by eventTold.
inline constexpr EventKind kGuardRefused = "guard-refused";
inline constexpr EventKind kMemoryRefused = "memory-refused";
inline constexpr EventKind kSuspendDoubted = "suspend-doubted";
inline constexpr EventKind kSuspendUndone = "suspend-undone";
inline constexpr EventKind kTaskStopped = "task-stopped";
inline constexpr EventKind kTaskUnattached = "task-unattached";
inline constexpr EventKind kTaskUnheld = "task-unheld";

// What the RPC client says to one watcher, without a number.
inline constexpr EventKind kWatchDropped = "watch-dropped";

}  // namespace qgpu
