#include "services/kubernetes/client/api_client.h"

#include <algorithm>
#include <cstring>
#include <simdjson.h>

#include "services/base/kj_time.h"
#include "services/base/net/dial.h"
#include "services/base/text.h"
#include "services/kubernetes/client/api_tls.h"

namespace qgpu {
namespace {

constexpr std::size_t kReadAtOnce = 64 << 10;
constexpr std::size_t kPadding = simdjson::SIMDJSON_PADDING;
constexpr std::size_t kMessageMax = 1024;

ApiAnswer faulty(ApiFault fault, std::string message) {
  ApiAnswer answer;
  answer.fault = fault;
  answer.message = std::move(message);
  return answer;
}

ApiFault faultOf(unsigned status, std::string_view reason) {
  switch (status) {
    case 401:
      return ApiFault::Unauthorized;
    case 403:
      return ApiFault::Forbidden;
    case 404:
      return ApiFault::NotFound;
    case 409:
      return reason == "AlreadyExists" ? ApiFault::AlreadyExists : ApiFault::Conflict;
    case 410:
      return ApiFault::Gone;
    case 429:
      return ApiFault::Busy;
    default:
      break;
  }
  if (status >= 500) return ApiFault::ServerFault;
  return status >= 400 ? ApiFault::Refused : ApiFault::Malformed;
}

// The texts of a Status that matter; of anything else nothing.
struct StatusTexts {
  std::string message;
  std::string reason;
  std::uint64_t code = 0;
};
StatusTexts wordsOf(const std::string& body) {
  StatusTexts words;
  simdjson::dom::parser parser;
  simdjson::dom::element status;
  if (parser.parse(body).get(status) != simdjson::SUCCESS) return words;
  std::string_view said;
  if (status["message"].get(said) == simdjson::SUCCESS) {
    words.message = said.substr(0, kMessageMax);
  }
  if (status["reason"].get(said) == simdjson::SUCCESS) words.reason = said;
  std::uint64_t code = 0;
  if (status["code"].get(code) == simdjson::SUCCESS) words.code = code;
  return words;
}

// All of a body, with room for simdjson's padding behind it; nothing where it is too large.
class BodyReader {
 public:
  BodyReader(kj::Own<kj::AsyncInputStream> stream, std::size_t most)
      : stream_(kj::mv(stream)), most_(most) {
    KJ_IF_MAYBE (length, stream_->tryGetLength()) {
      if (*length <= most_) text_.reserve(static_cast<std::size_t>(*length) + kPadding);
    }
  }
  kj::Promise<kj::Maybe<std::string>> read() {
    const std::size_t have = text_.size();
    const std::size_t step =
        std::max(kReadAtOnce, text_.capacity() - std::min(text_.capacity(), have + kPadding));
    text_.resize(have + step);
    return stream_->tryRead(text_.data() + have, step, step)
        .then([this, have, step](std::size_t n) -> kj::Promise<kj::Maybe<std::string>> {
          text_.resize(have + n);
          if (text_.size() > most_) return kj::Maybe<std::string>(nullptr);
          if (n < step) return kj::Maybe<std::string>(std::move(text_));
          return read();
        });
  }

 private:
  kj::Own<kj::AsyncInputStream> stream_;
  const std::size_t most_;
  std::string text_;
};

// The lines of a watch as they arrive.
class LineReader {
 public:
  LineReader(kj::Own<kj::AsyncInputStream> stream, LineSink& sink, kj::Timer& timer,
             std::size_t most, Nanos silence)
      : stream_(kj::mv(stream)), sink_(sink), timer_(timer), most_(most), silence_(silence) {}

  kj::Promise<ApiAnswer> read() {
    if (buffer_.size() < end_ + kReadAtOnce + kPadding) {
      buffer_.resize(std::max(buffer_.size() * 2, end_ + kReadAtOnce + kPadding));
    }
    auto some = stream_->tryRead(buffer_.data() + end_, 1, kReadAtOnce);
    return timer_.timeoutAfter(toKj(silence_), kj::mv(some))
        .then([this](std::size_t n) -> kj::Promise<ApiAnswer> {
          if (n == 0) return ApiAnswer{};
          end_ += n;
          if (!pass()) return ApiAnswer{};
          if (end_ - begin_ > most_) {
            return faulty(ApiFault::Malformed,
                          "a line of the watch is longer than " + std::to_string(most_) + " bytes");
          }
          return read();
        });
  }

 private:
  bool pass() {
    while (const void* found = std::memchr(buffer_.data() + looked_, '\n', end_ - looked_)) {
      const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
      const std::string_view line(buffer_.data() + begin_, at - begin_);
      begin_ = looked_ = at + 1;
      if (!line.empty() && !sink_.onLine(line)) return false;
    }
    looked_ = end_;
    if (begin_ == 0) return true;
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    looked_ = end_;
    begin_ = 0;
    return true;
  }

  kj::Own<kj::AsyncInputStream> stream_;
  LineSink& sink_;
  kj::Timer& timer_;
  const std::size_t most_;
  const Nanos silence_;
  std::string buffer_;
  std::size_t begin_ = 0;   // of the line that is not complete
  std::size_t looked_ = 0;  // no line end before it
  std::size_t end_ = 0;
};

}  // namespace

Error ApiAnswer::error() const {
  switch (fault) {
    case ApiFault::NotFound:
      return fail(ErrorCode::NotFound, message);
    case ApiFault::AlreadyExists:
      return fail(ErrorCode::AlreadyExists, message);
    case ApiFault::Conflict:
    case ApiFault::Gone:
      return fail(ErrorCode::Conflict, message);
    case ApiFault::Unauthorized:
    case ApiFault::Forbidden:
      return fail(ErrorCode::Denied, message);
    case ApiFault::Refused:
      return fail(ErrorCode::InvalidArgument, message);
    case ApiFault::Busy:
      return fail(ErrorCode::Overloaded, message);
    default:
      return fail(ErrorCode::Unavailable, message);
  }
}

ApiAnswer readStatus(unsigned status, const std::string& body) {
  const StatusTexts words = wordsOf(body);
  ApiAnswer answer;
  answer.status = status;
  answer.fault =
      faultOf(words.code >= 400 ? static_cast<unsigned>(words.code) : status, words.reason);
  answer.message =
      words.message.empty() ? "the API server answers " + std::to_string(status) : words.message;
  if (answer.fault == ApiFault::Forbidden) {
    answer.message += " (a ClusterRole of this account lacks that verb, or a hook forbids it)";
  }
  return answer;
}

std::string urlEscaped(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

// Where the HTTP client connects to; TLS is part of it.
class ApiClient::Address final : public kj::NetworkAddress {
 public:
  explicit Address(ApiClient& client) : client_(client) {}
  kj::Promise<kj::Own<kj::AsyncIoStream>> connect() override { return client_.connect(); }
  kj::Own<kj::ConnectionReceiver> listen() override { KJ_UNIMPLEMENTED("a client"); }
  kj::Own<kj::NetworkAddress> clone() override { return kj::heap<Address>(client_); }
  kj::String toString() override { return kj::str(client_.credentials_.host.c_str()); }

 private:
  ApiClient& client_;
};

ApiClient::ApiClient(KubeCredentials credentials, kj::Network& network, kj::Timer& timer,
                     std::uint64_t seed, ApiLimits limits)
    : credentials_(std::move(credentials)),
      network_(network),
      timer_(timer),
      limits_(limits),
      seeds_(seed) {
  kj::HttpHeaderTable::Builder builder;
  accept_ = builder.add("Accept");
  authorization_ = builder.add("Authorization");
  agent_ = builder.add("User-Agent");
  retryAfter_ = builder.add("Retry-After");
  table_ = builder.build();
  const bool v6 = credentials_.host.find(':') != std::string::npos;
  hostHeader_ = (v6 ? "[" + credentials_.host + "]" : credentials_.host) + ":" + credentials_.port;
  address_ = kj::heap<Address>(*this);
  kj::HttpClientSettings settings;
  settings.idleTimeout = toKj(limits_.idle);
  client_ = kj::newHttpClient(timer_, *table_, *address_, settings);
  limited_ =
      kj::newConcurrencyLimitingHttpClient(*client_, limits_.callsMax, [](kj::uint, kj::uint) {});
}

ApiClient::~ApiClient() noexcept(false) = default;

kj::Promise<kj::Own<kj::AsyncIoStream>> ApiClient::connect() {
  ++connections_;
  kj::Maybe<kj::TlsContext&> tls;
  if (credentials_.tls) {
    const bool old = timer_.now() - tlsRead_ > toKj(limits_.renewTls);
    if (tls_ == nullptr || old) {
      auto context = openApiTls(credentials_);
      // A file that is being replaced must not end what works.
      if (!context && tls_ == nullptr) {
        return KJ_EXCEPTION(FAILED, kj::str(context.error().message.c_str()));
      }
      if (context) tls_ = kj::mv(*context);
      tlsRead_ = timer_.now();
    }
    tls = *KJ_ASSERT_NONNULL(tls_);
  }
  return timer_.timeoutAfter(toKj(limits_.connectDeadline), dial(network_, hostHeader_, tls));
}

// --- one call ---

kj::Promise<ApiAnswer> ApiClient::call(ApiCall call) {
  ++calls_;
  auto kept = kj::heap<ApiCall>(std::move(call));
  auto& ref = *kept;
  return attempt(ref, timer_.now() + toKj(limits_.deadline), 0).attach(kj::mv(kept));
}

kj::Promise<ApiAnswer> ApiClient::attempt(const ApiCall& call, kj::TimePoint end, int tries) {
  auto late = timer_.atTime(end).then([this]() {
    return faulty(ApiFault::Unreachable, "the API server at " + hostHeader_ +
                                             " did not answer within " +
                                             std::to_string(limits_.deadline / millis(1)) + " ms");
  });
  return send(call)
      .exclusiveJoin(kj::mv(late))
      .then([this, &call, end, tries](ApiAnswer answer) -> kj::Promise<ApiAnswer> {
        const kj::TimePoint now = timer_.now();
        // `status` 0 and time left: a kept connection that the server had closed.
        if (answer.fault == ApiFault::Unreachable && call.method == kj::HttpMethod::GET &&
            tries == 0 && now < end && reachable_) {
          return attempt(call, end, 1);
        }
        if (answer.retryAfter == Nanos(0) || now + toKj(answer.retryAfter) >= end) {
          return heard(std::move(answer));
        }
        const Nanos jitter(static_cast<std::int64_t>(seeds_.next() % 1000) * 100'000);
        return timer_.afterDelay(toKj(answer.retryAfter + jitter)).then([this, &call, end]() {
          return attempt(call, end, 1);
        });
      });
}

ApiAnswer ApiClient::heard(ApiAnswer answer) {
  const bool now = answer.fault != ApiFault::Unreachable;
  if (!now && reachable_) unreachableSince_ = timer_.now();
  reachable_ = now;
  return answer;
}

const std::string& ApiClient::token() {
  const bool old = timer_.now() - tokenRead_ > toKj(limits_.renewToken);
  if (tokenKnown_ && (!old || credentials_.token.path.empty())) return token_;
  auto text = credentials_.token.read();
  if (text) {
    token_ = std::move(*text);
    while (!token_.empty() && (token_.back() == '\n' || token_.back() == '\r')) token_.pop_back();
  }
  tokenKnown_ = true;
  tokenRead_ = timer_.now();
  return token_;
}

kj::HttpHeaders ApiClient::headers(const ApiCall& call) {
  kj::HttpHeaders out(*table_);
  out.set(kj::HttpHeaderId::HOST, kj::str(hostHeader_.c_str()));
  out.set(accept_, "application/json");
  out.set(agent_, "qgpu");
  if (!call.body.empty()) out.set(kj::HttpHeaderId::CONTENT_TYPE, call.type);
  if (const std::string& bearer = token(); !bearer.empty()) {
    out.set(authorization_, kj::str("Bearer ", bearer.c_str()));
  }
  return out;
}

kj::Promise<kj::HttpClient::Response> ApiClient::request(kj::HttpClient& client,
                                                         const ApiCall& call) {
  const std::string path = credentials_.prefix + call.path;
  const bool get = call.method == kj::HttpMethod::GET;
  kj::Maybe<std::uint64_t> size;
  if (!get) size = call.body.size();
  auto sent = client.request(call.method, ptr(path), headers(call), size);
  if (call.body.empty()) return kj::mv(sent.response);
  auto written = sent.body->write(call.body.data(), call.body.size()).attach(kj::mv(sent.body));
  return written.then([response = kj::mv(sent.response)]() mutable { return kj::mv(response); });
}

kj::Promise<ApiAnswer> ApiClient::send(const ApiCall& call) {
  return kj::evalNow([&]() { return request(*limited_, call); })
      .then([this](kj::HttpClient::Response response) { return answered(kj::mv(response)); })
      .catch_([this](kj::Exception&& why) { return failed(why); });
}

kj::Promise<ApiAnswer> ApiClient::answered(kj::HttpClient::Response response) {
  const unsigned status = response.statusCode;
  Nanos after{0};
  KJ_IF_MAYBE (text, response.headers->get(retryAfter_)) {
    if (const auto n = parseUint(view(*text)); n && *n <= 3600) {
      after = seconds(static_cast<std::int64_t>(std::max<std::uint64_t>(*n, 1)));
    }
  }
  auto reader = kj::heap<BodyReader>(kj::mv(response.body), limits_.bodyMax);
  auto read = reader->read();
  return read.attach(kj::mv(reader)).then([this, status, after](kj::Maybe<std::string> whole) {
    std::string body;
    KJ_IF_MAYBE (text, whole) {
      body = std::move(*text);
    } else {
      return faulty(ApiFault::TooLarge, "an answer of the API server is larger than " +
                                            std::to_string(limits_.bodyMax) + " bytes");
    }
    if (status >= 200 && status < 300) {
      ApiAnswer answer;
      answer.status = status;
      answer.body = std::move(body);
      return answer;
    }
    if (status == 401) tokenKnown_ = false;  // it may have been replaced since
    ApiAnswer answer = readStatus(status, body);
    if (status == 429 || status == 503) answer.retryAfter = after;
    return answer;
  });
}

ApiAnswer ApiClient::failed(const kj::Exception& why) const {
  std::string said(view(why.getDescription()));
  if (said.find("certificate verify failed") != std::string::npos ||
      said.find("not trusted") != std::string::npos) {
    const std::string& name =
        credentials_.serverName.empty() ? credentials_.host : credentials_.serverName;
    said = "its certificate is not signed by the cluster's CA (" + credentials_.source +
           "), or does not name " + name;
  }
  return faulty(ApiFault::Unreachable, "the API server at " + hostHeader_ +
                                           " can't be reached: " + said.substr(0, kMessageMax));
}

// --- watches ---

kj::Promise<ApiAnswer> ApiClient::watch(std::string path, LineSink& sink, Nanos silence) {
  ++calls_;
  auto call = kj::heap<ApiCall>(ApiCall{kj::HttpMethod::GET, std::move(path), "", ""});
  auto asked = kj::evalNow(
      [&]() { return timer_.timeoutAfter(toKj(limits_.deadline), request(*client_, *call)); });
  return asked
      .then([this, &sink, silence](kj::HttpClient::Response response) -> kj::Promise<ApiAnswer> {
        if (response.statusCode != 200) return answered(kj::mv(response));
        reachable_ = true;
        auto reader =
            kj::heap<LineReader>(kj::mv(response.body), sink, timer_, limits_.lineMax, silence);
        auto read = reader->read();
        return read.attach(kj::mv(reader));
      })
      .catch_([this](kj::Exception&& why) { return failed(why); })
      .then([this](ApiAnswer answer) { return heard(std::move(answer)); })
      .attach(kj::mv(call));
}

}  // namespace qgpu
