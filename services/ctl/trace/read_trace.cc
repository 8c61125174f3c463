#include "services/ctl/trace/read_trace.h"

namespace qgpu::ctl {

Status catchUp(Asker& asker, TraceReader& reader, Nanos limit, std::vector<Answer>* told) {
  Ask ask = askFor("trace", reader.card());
  std::uint64_t before = 0;
  do {
    before = reader.since();
    ask.words[1] = std::to_string(before);
    Result<Answer> answer = answerTo(asker, ask, limit);
    if (!answer) return answer.error();
    reader.add(answer->root());
    if (told != nullptr) told->push_back(std::move(*answer));
  } while (!reader.caughtUp() && reader.since() != before);
  return ok();
}

}  // namespace qgpu::ctl
