#pragma once
// A blocking connection to a daemon: a question out, a document back, with a deadline. Client
// speaks to the admin socket; server.h has the one that speaks RPC and answers the same. What comes
// back becomes a Document where it comes in, and is shown from that.

#include <memory>
#include <string>

#include "runtime/result.h"
#include "runtime/units.h"
#include "services/ctl/answers/ask.h"
#include "services/ctl/answers/document.h"

namespace qgpu::ctl {

// Longest answer that we take; 100,000 tasks of a cluster are some 70 MB.
inline constexpr std::size_t kAnswerMax = 512U << 20U;

// What a daemon said.
class Answer {
 public:
  Answer(Document document);
  // Of JSON; of a text that is none an object without members.
  Answer(std::string_view json, std::size_t behind = 0);  // as of readJson()
  Answer(const std::string& json) : Answer(std::string_view(json)) {}
  Answer(const char* json) : Answer(std::string_view(json)) {}

  // Lives as long as this.
  Value root() const { return document_->root(); }
  // The daemon's error where it said no; Corrupt where this is no document of its kind.
  const Status& status() const { return status_; }

 private:
  std::unique_ptr<Document> document_;  // which stays where its values look for it
  Status status_ = ok();
};

class Asker {
 public:
  virtual ~Asker() = default;
  // The daemon's document, whatever it says. Unavailable: no daemon, or it went away.
  virtual Result<Answer> ask(const Ask& ask, Nanos limit) = 0;
  // The next document of a stream that a `watch` began. kNever waits as long as it takes.
  virtual Result<Answer> nextLine(Nanos limit) = 0;
};

// The answer, or why there is none, whoever said so.
Result<Answer> answerTo(Asker& asker, const Ask& ask, Nanos limit);

class Client final : public Asker {
 public:
  explicit Client(std::string socket) : socket_(std::move(socket)) {}
  ~Client() override { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const std::string& socket() const { return socket_; }

  // Connects anew where that helps.
  Result<Answer> ask(const Ask& ask, Nanos limit) override { return askLine(lineOf(ask), limit); }
  Result<Answer> askLine(const std::string& line, Nanos limit = seconds(10));
  Result<Answer> nextLine(Nanos limit) override;

  // Ready for reading as poll() understands it; -1 where not connected.
  int fd() const { return fd_; }
  void close();

 private:
  Status connect();
  void write(const std::string& text);

  std::string socket_;
  std::string received_;
  std::size_t searched_ = 0;  // of it, without a newline
  int fd_ = -1;
};

// Of the monotonic clock.
Nanos now();

// A line that starts a daemon which would listen on `socket`.
std::string startLine(const std::string& socket);

// The folder of this program's binary.
std::string binaryFolder();

}  // namespace qgpu::ctl
