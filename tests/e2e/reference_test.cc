// docs/reference/metrics.md is what a scrape of both daemons finds: each family with the type and
// the words that it has there, and the labels of its samples. So the daemons are led to where every
// family has one: on Kubernetes, with certificates, a pod that runs and a task that waits.

#include <map>
#include <set>

#include "tests/e2e/kubernetes/kube_world.h"
#include "tests/testing/certificates.h"
#include "tests/testing/reference_page.h"

namespace qgpu::e2e::reference_test {
namespace {

using testing::cell;
using testing::code;
using testing::row;

constexpr const char* kHead = R"(# Metrics

What `/metrics` of the daemons shows, in Prometheus text: of a manager at `127.0.0.1:12347`, of a
scheduler at `127.0.0.1:12345`, unless `--http` says otherwise; `--metrics` opens another address
for a Prometheus elsewhere ([monitoring](../operate/monitoring.md)). Times are seconds, memory is
bytes, shares are thousandths of a card. A summary has `quantile="0.5"` and `"0.99"` of what was
measured last, and a counter NAME`_count`; a histogram has NAME`_bucket` up to each bound `le`,
NAME`_sum` and NAME`_count` of all since the start. [The dashboard](../../deploy/grafana/qgpu.json)
and [the alerts](../../deploy/prometheus/alerts.yaml) are made of them.

Families with `kube` in their name, what is said of pods, binds and namespaces, and the labels
`namespace`, `pod` and `container` of tasks are there on Kubernetes; `qgpu_tls_files_refused` where
a daemon has certificates. This page is generated from what a scrape finds.

)";

struct Family {
  std::string name, type, help;
  std::vector<std::string> labels;
  std::size_t samples = 0;
};

// The names before each '=' between the braces of a sample.
std::vector<std::string> labelsOf(const std::string& line) {
  std::vector<std::string> names;
  std::size_t at = line.find('{');
  while (at != std::string::npos && line[at] != '}') {
    const std::size_t equals = line.find("=\"", at);
    names.push_back(line.substr(at + 1, equals - at - 1));
    at = equals + 2;
    while (line[at] != '"') at += line[at] == '\\' ? 2 : 1;
    ++at;
  }
  return names;
}

std::vector<Family> familiesOf(const std::string& page) {
  std::vector<Family> all;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark, what, name, rest;
    words >> mark >> what >> name;
    std::getline(words >> std::ws, rest);
    if (mark == "#" && what == "HELP") all.push_back({name, "", rest, {}, 0});
    if (mark == "#" && what == "TYPE") all.back().type = rest;
    if (mark == "#" || all.empty() || !line.starts_with(all.back().name)) continue;
    ++all.back().samples;
    for (const std::string& label : labelsOf(line)) {
      auto& known = all.back().labels;
      const bool isNew = std::find(known.begin(), known.end(), label) == known.end();
      if (isNew) known.push_back(label);
    }
  }
  return all;
}

bool haveSamples(const std::vector<Family>& all) {
  return !all.empty() && std::all_of(all.begin(), all.end(),
                                     [](const Family& family) { return family.samples > 0; });
}

std::string rows(const std::vector<Family>& all) {
  std::string out = "| metric | type | labels | meaning |\n|---|---|---|---|\n";
  for (const Family& family : all) {
    std::string labels;
    for (const std::string& label : family.labels) labels += (labels.empty() ? "" : ", ") + label;
    out += row({code(family.name), family.type, cell(labels), cell(family.help)});
  }
  return out;
}

// The page once each family has a sample; what has none goes with a failure.
std::vector<Family> scraped(const Daemon& daemon) {
  std::vector<Family> all;
  const bool whole =
      eventually([&] { return haveSamples(all = familiesOf(daemon.get("/metrics"))); },
                 std::chrono::seconds(60));
  for (const Family& family : all) EXPECT_GT(family.samples, 0u) << family.name;
  EXPECT_TRUE(whole);
  return all;
}

struct Reference : KubeWorld {
  PlainTenant tenant{dir.path() + "/tenant"};
  testing::Certificates certificates{dir.path()};
};

TEST_F(Reference, ThePageOfMetricsIsWhatAScrapeFinds) {
  certificates.makeCa("ca");
  const TlsFiles files = certificates.make("ca", "host", "IP:127.0.0.1", "/OU=qgpu-node");
  const std::vector<std::string> tls = {"--tls-cert=" + files.cert, "--tls-key=" + files.key,
                                        "--tls-ca=" + files.ca};
  schedulerFlags = tls;
  startAll("sim:1x16", tls);
  create("train", {30, 5}, tenant.command());
  ASSERT_TRUE(schedule("train"));
  ASSERT_TRUE(reaches("train", "Running")) << kubelet.trouble("train");
  const Json waits = scheduler->ask(R"(submit {"name":"next","memory_gib":12,"core_percent":50})");
  EXPECT_EQ(waits["ok"], true) << waits;

  std::string page = kHead;
  page += "## Of a manager\n\n" + rows(scraped(*manager));
  page += "\n## Of a scheduler\n\n" + rows(scraped(*scheduler));
  testing::expectPage("metrics.md", page);
  tenant.end();
  EXPECT_TRUE(reaches("train", "Succeeded"));
}

}  // namespace
}  // namespace qgpu::e2e::reference_test
