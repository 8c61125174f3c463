// qgpuctl: what a person types. Reads its arguments, asks the daemon, shows the answer.

#include <simdjson.h>

#include <cstdio>
#include <string>
#include <vector>

#include "services/ctl/client.h"
#include "services/ctl/options.h"
#include "services/ctl/run.h"
#include "services/ctl/top.h"
#include "services/ctl/views.h"

namespace qgpu::ctl {
namespace {

int exitWith(Exit code) { return static_cast<int>(code); }

int noDaemon(const Error& error, const std::string& socket) {
  std::fprintf(stderr, "qgpuctl: %s\nqgpuctl: start one: %s\n", error.message.c_str(),
               startLine(socket).c_str());
  return exitWith(Exit::NoDaemon);
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
  if (!answer) return noDaemon(answer.error(), options.socket);
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
Result<std::string> allEvents(Client& client, std::uint64_t& since) {
  std::string events;
  while (true) {
    Result<std::string> answer = client.ask("events " + std::to_string(since));
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

int events(const Options& options) {
  Client client(options.socket);
  std::uint64_t last = options.events.since;
  const int status = show(allEvents(client, last), options);
  if (status != exitWith(Exit::Ok) || !options.events.follow) return status;
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
  return noDaemon(line.error(), options.socket);
}

int act(const Options& options) {
  switch (options.action) {
    case Action::Ask: {
      Client client(options.socket);
      return show(client.ask(options.line), options);
    }
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
