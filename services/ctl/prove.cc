#include "services/ctl/prove.h"

#include <cstdio>
#include <cstring>
#include <errno.h>
#include <unistd.h>

#include "services/ctl/answers/client.h"
#include "services/ctl/answers/table.h"
#include "services/prove/page.h"
#include "services/prove/prove.h"

namespace qgpu::ctl {
namespace {

constexpr int kInterrupted = 130;

int failed(const Error& error, const Options& options) {
  std::fprintf(stderr, "qgpuctl: %s\n", printable(error.message).c_str());
  if (prove::wasStopped()) return kInterrupted;
  const bool away = error.code == ErrorCode::Unavailable && options.prove.verify.empty();
  return static_cast<int>(away ? Exit::NoDaemon : Exit::Refused);
}

int show(const prove::Report& report, const Options& options) {
  if (isTable(options.output)) {
    Table table({{"VERDICT"}, {"PROMISE"}, {"WHY"}});
    for (const prove::Promise& promise : report.promises) {
      table.add({std::string(prove::nameOf(promise.verdict)), promise.id, promise.why});
    }
    writeOut(table.text() + prove::countsOf(report) + "\n");
  } else {
    writeOut(documentOf(prove::jsonOf(report), options.output));
  }
  return static_cast<int>(report.allHold() ? Exit::Ok : Exit::NotProven);
}

int verify(const Options& options) {
  const auto verified = prove::verifyReport(options.prove);
  if (!verified) return failed(verified.error(), options);
  const prove::Head& head = verified->report.head;
  std::fprintf(stderr, "qgpuctl: signed by %s: %s, driver %s, kernel %s, qgpu %s, on %s at %s\n",
               printable(verified->signer).c_str(), printable(head.model).c_str(),
               printable(head.driver).c_str(), printable(head.kernel).c_str(),
               printable(head.version).c_str(), printable(head.host).c_str(),
               printable(head.date).c_str());
  return show(verified->report, options);
}

void keepPlace(const Options& options, const std::string& card, const std::string& path) {
  if (path.find_first_of(" \t\r\n") != std::string::npos) {
    std::fprintf(stderr,
                 "qgpuctl: the manager keeps no path with blanks: it does not know of this "
                 "report\n");
    return;
  }
  Client manager(options.socket);
  Ask ask = askFor("report", card);
  ask.words[1] = path;
  const Result<Answer> kept = answerTo(manager, ask, seconds(10));
  if (kept) return;
  std::fprintf(stderr, "qgpuctl: the manager does not keep where it lies: %s\n",
               printable(kept.error().message).c_str());
}

// One that was made just now; the manager keeps where it lies, but of a part alone, which says too
// little to be the card's.
int make(const Options& options) {
  const bool told = ::isatty(STDERR_FILENO) == 1;
  const auto tell = [told](const std::string& what) {
    if (told) std::fprintf(stderr, "qgpuctl: %s\n", printable(what).c_str());
  };
  const auto report = prove::prove(options.prove, {binaryFolder(), options.socket, tell});
  if (!report) return failed(report.error(), options);
  const auto written = prove::writeReport(options.prove, *report);
  if (!written) return failed(written.error(), options);
  std::fprintf(stderr, "qgpuctl: written: %s\n", printable(*written).c_str());
  if (options.prove.only.empty()) keepPlace(options, report->head.card, *written);
  return show(*report, options);
}

}  // namespace

int prove(const Options& options) {
  for (const std::string* file :
       {&options.prove.key, &options.prove.verify, &options.prove.allowedSigners}) {
    if (file->empty() || ::access(file->c_str(), R_OK) == 0) continue;
    std::fprintf(stderr, "qgpuctl: prove: %s can't be read: %s\n", printable(*file).c_str(),
                 std::strerror(errno));
    return static_cast<int>(Exit::Usage);
  }
  return options.prove.verify.empty() ? make(options) : verify(options);
}

}  // namespace qgpu::ctl
