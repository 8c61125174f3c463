// The API server's stand-in beside a real one: what a kube-apiserver 1.36.2 answered to each
// exchange of recorded/exchanges.json (tests/kubernetes/record_api.py asked it) the stand-in
// answers, too. It may say less of an object than a real one, which fills in defaults, and nothing
// else; of who and what it is, of refusals and of lists it says the same.
#include <fstream>
#include <kj/compat/http.h>
#include <regex>

#include "tests/unit/services/kubernetes/client/kube_fixture.h"

namespace qgpu::kube_recorded_test {
namespace {

using testing::ApiRoles;
using testing::ApiStandIn;
using testing::Json;
using testing::KubeFixture;

Json read(const std::string& name) {
  std::ifstream file(std::string(QGPU_RECORDED) + "/" + name);
  return Json::parse(file);
}

// Of every object and refusal; the rest of what a server fills in may be missing, as may the status
// of an object.
bool isWanted(const std::string& key, const Json& value) {
  if (key == "status" && value.is_object()) return false;
  if (key == "spec" && (value.contains("taints") || value.contains("finalizers"))) return false;
  static const std::set<std::string> wanted = {"kind",
                                               "apiVersion",
                                               "metadata",
                                               "name",
                                               "namespace",
                                               "uid",
                                               "resourceVersion",
                                               "status",
                                               "reason",
                                               "message",
                                               "code",
                                               "items",
                                               "type",
                                               "object",
                                               "nodeName",
                                               "phase",
                                               "spec",
                                               "annotations",
                                               "labels",
                                               "data",
                                               "holderIdentity",
                                               "deletionTimestamp"};
  return wanted.contains(key);
}

// Of a long sentence the stand-in says the beginning.
bool begins(const Json& recorded, const Json& said) {
  return recorded.is_string() && said.is_string() && said.get<std::string>().size() > 20 &&
         recorded.get<std::string>().starts_with(said.get<std::string>());
}

// Where the two differ, as "/a/b: ..."; empty: nowhere. "*" is any text.
void compare(const Json& recorded, const Json& said, const std::string& at, std::string& differs) {
  const auto differ = [&] {
    differs += at + ": " + said.dump() + " where a server says " + recorded.dump() + "\n";
  };
  if (recorded == "*") {
    if (!said.is_string() || said.get<std::string>().empty()) differ();
  } else if (recorded.is_object() && said.is_object()) {
    for (const auto& [key, value] : said.items()) {
      if (recorded.contains(key))
        compare(recorded[key], value, at + "/" + key, differs);
      else if (!value.empty())
        differs += at + "/" + key + ": a server says nothing of it\n";
    }
    for (const auto& [key, value] : recorded.items()) {
      if (!said.contains(key) && isWanted(key, value) && !value.empty()) {
        differs += at + "/" + key + ": missing, a server says " + value.dump() + "\n";
      }
    }
  } else if (recorded.is_array() && said.is_array() && recorded.size() == said.size()) {
    for (std::size_t i = 0; i < said.size(); ++i) {
      compare(recorded[i], said[i], at + "/" + std::to_string(i), differs);
    }
  } else if (recorded != said && !(at.ends_with("/message") && begins(recorded, said))) {
    differ();
  }
}

struct KubeRecorded : KubeFixture {
  ~KubeRecorded() noexcept override = default;

  // `${NAME/a/b}`: a part of an answer that was kept.
  std::string filled(const std::string& text) const {
    static const std::regex place(R"(\$\{([^/}]*)(/[^}]*)\})");
    std::string out;
    std::size_t from = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), place), end; at != end; ++at) {
      out += text.substr(from, static_cast<std::size_t>(at->position()) - from);
      out += kept.at((*at)[1]).at(Json::json_pointer((*at)[2])).get<std::string>();
      from = static_cast<std::size_t>(at->position() + at->length());
    }
    return out + text.substr(from);
  }

  struct Answer {
    unsigned status = 0;
    std::string text;
  };
  Answer ask(const Json& one) {
    kj::HttpMethod method = kj::HttpMethod::GET;
    KJ_IF_MAYBE (known, kj::tryParseHttpMethod(one.at("method").get<std::string>().c_str())) {
      method = *known;
    }
    kj::HttpHeaders headers(*table);
    const std::string account = one.value("account", "admin");
    headers.set(authorization, kj::str("Bearer ", account.c_str()));
    const std::string body = one.contains("body") ? filled(one["body"].dump()) : "";
    if (!body.empty()) {
      headers.set(kj::HttpHeaderId::CONTENT_TYPE,
                  kj::str(one.at("type").get<std::string>().c_str()));
    }
    const std::string url = "http://127.0.0.1:" + std::to_string(server->port()) +
                            filled(one.at("path").get<std::string>());
    auto asked = http->request(method, url.c_str(), headers, body.size());
    if (!body.empty()) wait(asked.body->write(body.data(), body.size()));
    asked.body = nullptr;
    auto response = wait(kj::mv(asked.response));
    server->endWatches();  // which have told all that there is
    const kj::String text = wait(response.body->readAllText());
    return {response.statusCode, std::string(text.begin(), text.size())};
  }

  // Versions and UIDs are others in each run; record_api.py has the same patterns.
  static Json steady(const Json& said) {
    static const std::regex uid("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");
    static const std::regex old(R"(too old resource version: \d+ \(\d+\))");
    std::string text = std::regex_replace(said.dump(), uid, "*");
    return Json::parse(std::regex_replace(text, old, "too old resource version: * (*)"));
  }

  // Whoever may list nodes, and nothing else; and nobody else is known.
  static ApiRoles roles() {
    const Json subject{
        {"kind", "ServiceAccount"}, {"name", "nobody"}, {"namespace", "kube-system"}};
    const Json rule{{"apiGroups", {""}}, {"resources", {"nodes"}}, {"verbs", {"list"}}};
    return ApiRoles({{{"kind", "ClusterRole"}, {"metadata", {{"name", "r"}}}, {"rules", {rule}}},
                     {{"kind", "ClusterRoleBinding"},
                      {"metadata", {{"name", "r"}}},
                      {"roleRef", {{"kind", "ClusterRole"}, {"name", "r"}}},
                      {"subjects", {subject}}}});
  }

  std::map<std::string, Json> kept;
  kj::HttpHeaderId authorization;
  kj::Own<kj::HttpHeaderTable> table = [this] {
    kj::HttpHeaderTable::Builder builder;
    authorization = builder.add("Authorization");
    return builder.build();
  }();
  kj::Own<kj::HttpClient> http =
      kj::newHttpClient(kj.timer(), *table, kj.io().getNetwork(), nullptr);
};

TEST_F(KubeRecorded, TheStandInAnswersAsAServerDid) {
  server->minor = "36";
  const Json exchanges = read("exchanges.json");
  const Json answers = read("answers.json");
  ASSERT_EQ(exchanges.size(), answers.size());
  ASSERT_GT(answers.size(), 50U);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Json& one = exchanges[i];
    const Json& recorded = answers[i];
    ASSERT_EQ(one.at("name"), recorded.at("name"));
    SCOPED_TRACE(one.at("name").get<std::string>());
    if (one.value("before", "") == "forget") server->forget();
    server->roles = one.contains("account") ? std::optional(roles()) : std::nullopt;
    const Answer answer = ask(one);
    EXPECT_EQ(answer.status, recorded.at("status").get<unsigned>()) << answer.text;
    Json said;
    if (one.value("lines", false)) {
      said = Json::array();
      std::istringstream lines(answer.text);
      for (std::string line; std::getline(lines, line);) said.push_back(Json::parse(line));
    } else {
      said = Json::parse(answer.text, nullptr, false);
    }
    if (one.contains("as")) kept[one["as"].get<std::string>()] = said;
    std::string differs;
    compare(recorded.at("said"), steady(said), "", differs);
    EXPECT_EQ(differs, "");
  }
}

}  // namespace
}  // namespace qgpu::kube_recorded_test
