#include "services/api/join/join_codec.h"

#include <algorithm>
#include <simdjson.h>

#include "services/base/json.h"

namespace qgpu {
namespace {

using simdjson::dom::element;

constexpr std::uint64_t kPortMax = 65'535;

bool isHex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string wordOf(element root, const char* key) {
  std::string_view text;
  return root[key].get(text) == simdjson::SUCCESS ? std::string(text) : "";
}

Error noAsk(const std::string& why) {
  return fail(ErrorCode::InvalidArgument, "this is asked by `qgpuctl join`: " + why);
}

}  // namespace

Result<TokenWords> readToken(std::string_view text) {
  const std::size_t first = text.find('.');
  const std::size_t second = first == std::string_view::npos ? first : text.find('.', first + 1);
  if (second != std::string_view::npos) {
    TokenWords token{std::string(text.substr(0, first)),
                     std::string(text.substr(first + 1, second - first - 1)),
                     std::string(text.substr(second + 1))};
    if (isHex(token.id, kTokenIdDigits) && isHex(token.secret, kTokenSecretDigits) &&
        isHex(token.ca, kTokenCaDigits)) {
      return token;
    }
  }
  return fail(ErrorCode::InvalidArgument,
              "this is no whole token: copy all that `qgpuctl token create` said behind --token, " +
                  std::to_string(kTokenIdDigits + kTokenSecretDigits + kTokenCaDigits + 2) +
                  " characters with two dots");
}

std::string tokenText(const TokenWords& token) {
  return token.id + "." + token.secret + "." + token.ca;
}

Result<JoinAsk> readJoinAsk(const std::string& json) {
  if (json.size() > kJoinBodyMax) return noAsk("it is too long");
  simdjson::dom::parser parser;
  element root;
  if (parser.parse(json).get(root) != simdjson::SUCCESS) return noAsk("it is no JSON");
  JoinAsk ask{wordOf(root, "id"), wordOf(root, "secret"), wordOf(root, "node"),
              wordOf(root, "request")};
  if (root["unix"].get(ask.unix) != simdjson::SUCCESS || ask.node.empty() || ask.request.empty() ||
      !isHex(ask.id, kTokenIdDigits) || !isHex(ask.secret, kTokenSecretDigits)) {
    return noAsk("id, secret, node, request and unix are wanted");
  }
  return ask;
}

std::string joinAskText(const JoinAsk& ask) {
  JsonWriter json;
  json.beginObject().field("id", ask.id).field("secret", ask.secret).field("node", ask.node);
  json.field("request", ask.request).key("unix").number(ask.unix).endObject();
  return json.take();
}

Result<JoinAnswer> readJoinAnswer(const std::string& json) {
  simdjson::dom::parser parser;
  element root;
  bool ok = false;
  if (parser.parse(json).get(root) != simdjson::SUCCESS ||
      root["ok"].get(ok) != simdjson::SUCCESS) {
    return fail(ErrorCode::Unavailable,
                "what answers there is no scheduler's door: name the address of --join");
  }
  if (!ok) return fail(ErrorCode::Denied, wordOf(root, "error"));
  JoinAnswer answer{wordOf(root, "certificate"), wordOf(root, "ca")};
  if (root["rpc_port"].get(answer.rpcPort) == simdjson::SUCCESS && answer.rpcPort <= kPortMax &&
      !answer.certificate.empty() && !answer.ca.empty()) {
    return answer;
  }
  return fail(ErrorCode::Unavailable, "the scheduler's answer is of another version");
}

std::string joinAnswerText(const JoinAnswer& answer) {
  JsonWriter json;
  json.beginObject().flag("ok", true).field("certificate", answer.certificate);
  json.field("ca", answer.ca).count("rpc_port", answer.rpcPort).endObject();
  return json.take();
}

}  // namespace qgpu
