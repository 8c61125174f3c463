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

// One question, one answer. JSON goes out as it came, a refusal too.
int ask(Client& client, const Options& options, const std::string& line, std::string& answer) {
  Result<std::string> got = client.ask(line);
  if (!got) return noDaemon(got.error(), options.socket);
  answer = std::move(*got);
  const Status status = statusOf(answer);
  if (options.output == Output::Json) {
    print(answer + "\n");
    return exitWith(status ? Exit::Ok : Exit::Refused);
  }
  if (!status) return refused(status.error());
  const Result<std::string> view = viewOf(options.command, answer);
  if (!view) return refused(view.error());
  return print(*view);
}

std::uint64_t lastSequence(const std::string& answer, std::uint64_t since) {
  simdjson::dom::parser parser;
  simdjson::dom::array events;
  if (parser.parse(answer)["events"].get(events) != simdjson::SUCCESS) return since;
  for (const simdjson::dom::element event : events) since = numberOf(event, "seq");
  return since;
}

int events(const Options& options) {
  Client client(options.socket);
  std::string answer;
  const std::string since = std::to_string(options.events.since);
  const int status = ask(client, options, "events " + since, answer);
  if (status != exitWith(Exit::Ok) || !options.events.follow) return status;
  const std::uint64_t last = lastSequence(answer, options.events.since);
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
      std::string answer;
      return ask(client, options, options.line, answer);
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
