// Claim: a scrape of 1,000 cards takes less than 50 ms, from the first byte of the question to the
// last of the answer, over TCP from a real manager with simulated cards. Prints one JSON line.
// --cards=N, --scrapes=N.

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "tests/testing/private_daemon.h"

namespace qgpu::bench {
namespace {

constexpr auto kServesWithin = std::chrono::seconds(60);
constexpr const char* kQuestion = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

int connectTo(const std::string& log) {
  const std::string mark = "metrics-open address=127.0.0.1:";
  const std::size_t at = log.find(mark);
  if (at == std::string::npos) return -1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(log.substr(at + mark.size()))));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(fd, name, sizeof address) == 0 ? fd : -1;
}

// How many bytes the page has; 0: it did not come.
std::size_t scrape(int fd, std::string& answer) {
  answer.clear();
  if (::send(fd, kQuestion, std::strlen(kQuestion), MSG_NOSIGNAL) < 0) return 0;
  std::size_t whole = SIZE_MAX;
  std::vector<char> part(1U << 20U);
  while (answer.size() < whole) {
    const ssize_t n = ::recv(fd, part.data(), part.size(), 0);
    if (n <= 0) return 0;
    answer.append(part.data(), static_cast<std::size_t>(n));
    const std::size_t body = answer.find("\r\n\r\n");
    const std::size_t length = answer.find("Content-Length: ");
    if (whole == SIZE_MAX && body != std::string::npos && length < body) {
      whole = body + 4 + std::strtoul(answer.c_str() + length + 16, nullptr, 10);
    }
  }
  return whole;
}

int measure(const std::string& cards, int scrapes) {
  testing::PrivateDaemon manager(
      "manager", testing::TempFolder("metrics"),
      {"--cards=sim:" + cards + "x16", "--metrics=127.0.0.1:0", "--log-level=info"});
  manager.launch();
  if (!manager.awaitService(kServesWithin)) {
    std::fprintf(stderr, "the manager did not come up: %s\n", manager.log().c_str());
    return 1;
  }
  const int fd = connectTo(manager.log());
  std::string page;
  std::vector<double> took;
  std::size_t bytes = scrape(fd, page);  // the first one has pages to map
  for (int i = 0; i < scrapes && bytes != 0; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    bytes = scrape(fd, page);
    took.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun)
            .count());
  }
  ::close(fd);
  if (bytes == 0) {
    std::fprintf(stderr, "the manager answered no page\n");
    return 1;
  }
  std::sort(took.begin(), took.end());
  const auto at = [&](std::size_t permille) { return took[(took.size() - 1) * permille / 1000]; };
  std::printf(
      "{\"bench\":\"metrics\",\"cards\":%s,\"scrapes\":%zu,\"bytes\":%zu,\"lines\":%td,"
      "\"scrape_ms\":{\"p50\":%.1f,\"p99\":%.1f,\"most\":%.1f}}\n",
      cards.c_str(), took.size(), bytes, std::count(page.begin(), page.end(), '\n'), at(500),
      at(990), took.back());
  return 0;
}

}  // namespace
}  // namespace qgpu::bench

int main(int argc, char** argv) {
  std::string cards = "1000";
  int scrapes = 100;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--cards="))
      cards = word.substr(8);
    else if (word.starts_with("--scrapes="))
      scrapes = std::max(1, std::atoi(word.c_str() + 10));
    else
      return std::fprintf(stderr, "bench_metrics [--cards=N] [--scrapes=N]\n"), 2;
  }
  return qgpu::bench::measure(cards, scrapes);
}
