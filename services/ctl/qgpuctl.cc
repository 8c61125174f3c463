// qgpuctl: what a person types. Reads its arguments, asks the daemon, shows the answer.

#include <simdjson.h>

#include <sys/random.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "services/ctl/client.h"
#include "services/ctl/options.h"
#include "services/ctl/run.h"
#include "services/ctl/server.h"
#include "services/ctl/top.h"
#include "services/ctl/views.h"

namespace qgpu::ctl {
namespace {

int exitWith(Exit code) { return static_cast<int>(code); }

constexpr Nanos kLimit = seconds(10);
constexpr Nanos kClusterLimit = seconds(40);   // a submit is answered when its node has confirmed
constexpr unsigned kWaitPauseUs = 500'000;

int noDaemon(const Error& error, const Options& options) {
  std::fprintf(stderr, "qgpuctl: %s\n", error.message.c_str());
  if (options.server.empty()) {
    std::fprintf(stderr, "qgpuctl: start one: %s\n", startLine(options.socket).c_str());
  }
  return exitWith(Exit::NoDaemon);
}

// Whom a command asks; connected later where it is a socket.
Result<std::unique_ptr<Asker>> reach(const Options& options) {
  if (options.server.empty()) return std::unique_ptr<Asker>(new Client(options.socket));
  auto server = Server::connect(options.server, options.tls);
  if (!server) return server.error();
  return std::unique_ptr<Asker>(std::move(*server));
}

Nanos limitOf(const Options& options) {
  return options.daemon == Daemon::Manager ? kLimit : kClusterLimit;
}

int refused(const Error& error) {
  std::fprintf(stderr, "qgpuctl: %s (%s)\n", error.message.c_str(), errorName(error.code));
  return exitWith(Exit::Refused);
}

int print(const std::string& text) {
  // A reader that left, as `| head` does, is no failure.
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return exitWith(Exit::Ok);
}

// An answer, shown. JSON goes out as it came, a refusal too.
int show(const Result<std::string>& answer, const Options& options) {
  if (!answer) return noDaemon(answer.error(), options);
  const Status status = statusOf(*answer);
  if (options.output == Output::Json) {
    print(*answer + "\n");
    return exitWith(status ? Exit::Ok : Exit::Refused);
  }
  if (!status) return refused(status.error());
  const Result<std::string> view = viewOf(options.command, *answer);
  if (!view) return refused(view.error());
  return print(*view);
}

// What the daemon remembers after `since`, as if it had told all in one answer: it tells the oldest
// first and a part at a time. `since` becomes the number of the newest.
Result<std::string> allEvents(Asker& asker, std::uint64_t& since) {
  std::string events;
  while (true) {
    Result<std::string> answer = asker.ask("events " + std::to_string(since), kLimit);
    if (!answer || !statusOf(*answer)) return answer;
    simdjson::dom::parser parser;
    simdjson::dom::array page;
    const std::uint64_t before = since;
    if (parser.parse(*answer)["events"].get(page) != simdjson::SUCCESS) return answer;
    for (const simdjson::dom::element event : page) {
      if (numberOf(event, "seq") <= since) continue;
      since = numberOf(event, "seq");
      events += (events.empty() ? "" : ",") + simdjson::minify(event);
    }
    if (since == before) return R"({"ok":true,"events":[)" + events + "]}";
  }
}

int follow(const Options& options, std::uint64_t last) {
  Client client(options.socket);
  Result<std::string> line = client.ask("watch " + std::to_string(last));
  for (bool first = true; line; line = client.nextLine(kNever), first = false) {
    if (Status said = statusOf(*line); !said) return refused(said.error());
    if (first) continue;  // {"ok":true,"watching":true}
    simdjson::dom::parser parser;
    simdjson::dom::element event;
    if (parser.parse(*line)["event"].get(event) != simdjson::SUCCESS) continue;
    print(options.output == Output::Json ? *line + "\n" : eventLine(event));
    if (std::ferror(stdout) != 0) return exitWith(Exit::Ok);
  }
  return noDaemon(line.error(), options);
}

int events(const Options& options) {
  auto asker = reach(options);
  if (!asker) return noDaemon(asker.error(), options);
  std::uint64_t last = options.events.since;
  const int status = show(allEvents(**asker, last), options);
  if (status != exitWith(Exit::Ok) || !options.events.follow) return status;
  if (options.server.empty()) return follow(options, last);
  return refused(fail(ErrorCode::Unsupported, "--follow works on the scheduler's machine only"));
}

// Empty, so none, where the kernel gives nothing: a number that comes twice would be worse.
std::string newRequestId() {
  std::uint64_t words[2] = {};
  if (::getrandom(words, sizeof words, 0) != sizeof words) return {};
  char text[48];
  std::snprintf(text, sizeof text, "qgpuctl-%016llx%016llx",
                static_cast<unsigned long long>(words[0]),
                static_cast<unsigned long long>(words[1]));
  return text;
}

bool waits(const std::string& answer) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  return parser.parse(answer).get(root) == simdjson::SUCCESS && flagOf(root, "waiting");
}

// Asked again with the same request id the scheduler answers for the same task, over its own
// restarts too.
int submit(const Options& options) {
  PlaceOptions place = options.place;
  if (place.requestId.empty()) place.requestId = newRequestId();
  const std::string line = "submit " + submitSpec(options.run, place);
  bool reached = false;
  while (true) {
    auto asker = reach(options);
    if (!asker && !(reached && place.wait)) return noDaemon(asker.error(), options);
    Result<std::string> answer = asker ? (*asker)->ask(line, kClusterLimit) : asker.error();
    const bool again = answer ? waits(*answer) : reached;
    reached = reached || answer.ok();
    if (!place.wait || !again) return show(answer, options);
    ::usleep(kWaitPauseUs);
  }
}

int act(const Options& options) {
  switch (options.action) {
    case Action::Ask: {
      auto asker = reach(options);
      if (!asker) return noDaemon(asker.error(), options);
      return show((*asker)->ask(options.line, limitOf(options)), options);
    }
    case Action::Submit: return submit(options);
    case Action::Events: return events(options);
    case Action::Top: return top(options);
    case Action::Run: return run(options);
    case Action::Version: return print("qgpuctl " QGPU_VERSION "\n");
  }
  return exitWith(Exit::Usage);
}

}  // namespace
}  // namespace qgpu::ctl

int main(int argc, char** argv) {
  using namespace qgpu::ctl;
  const auto parsed = parseOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (const auto* exit = std::get_if<ExitNow>(&parsed)) {
    std::fputs(exit->text.c_str(), exit->code == 0 ? stdout : stderr);
    return exit->code;
  }
  return act(std::get<Options>(parsed));
}
