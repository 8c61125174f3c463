#include "services/prove/page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "services/base/json.h"
#include "services/base/text.h"
#include "services/prove/judge.h"

namespace qgpu::prove {
namespace {

// A name from elsewhere within a line: no line end, no control sequence, nothing that Markdown
// takes for a sign of its own.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : toUtf8(text)) {
    const bool control = static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    if (std::string_view("\\`*_[]<>|#&").find(c) != std::string_view::npos) out += '\\';
    out += control ? ' ' : c;
  }
  return out;
}

// As code, which a table and a span of code leave as it is.
std::string code(const std::string& text) {
  const bool fits = text.find_first_of("`|\n\r") == std::string::npos;
  return fits ? "`" + toUtf8(text) + "`" : plain(text);
}

std::string figuresText(const Promise& promise) {
  std::string out;
  for (const Figure& figure : promise.figures) {
    out += (out.empty() ? "" : "<br>") + plain(figure.name) + " " + std::to_string(figure.value);
  }
  return out;
}

std::string headTable(const Head& head) {
  const std::pair<const char*, std::string> rows[] = {
      {"card", head.model + " (" + head.card + ")"},
      {"driver", head.driver + " (" + head.backend + ")"},
      {"kernel", head.kernel},
      {"qgpu", head.version},
      {"host", head.host},
      {"date", head.date},
      {"held by", head.suspend},
      {"isolation", head.isolation},
      {"priority of the manager's card loop", head.realtime},
      {"clock of the stamps", head.clock},
      {"processor time that others took meanwhile", percentText(head.othersPermille)},
      {"and the host of this machine", percentText(head.stolenPermille)},
  };
  std::string out = "| | |\n|---|---|\n";
  for (const auto& [name, value] : rows) {
    out += "| " + std::string(name) + " | " + plain(value) + " |\n";
  }
  return out;
}

// --- pictures ---

constexpr std::int64_t kWide = 720, kHigh = 320, kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;
constexpr const char* kColours[] = {"#1a7f37", "#2f6fd0", "#bc4c00", "#8250df", "#d1242f"};
constexpr const char* kStyle =
    "<style>text{font:12px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600}"
    ".back{fill:#fff}.grid{stroke:#d1d9e0;stroke-width:1}.bound{stroke:#59636e;"
    "stroke-dasharray:4 4}.line{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117}"
    ".grid{stroke:#30363d}}</style>\n";

std::string fixed(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", number);
  return text;
}

class Picture {
 public:
  explicit Picture(const std::string& title) {
    body_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + std::to_string(kWide) +
            " " + std::to_string(kHigh) + "\" role=\"img\" aria-label=\"" + escapeXml(title) +
            "\">\n" + kStyle + "<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n";
    text(kLeft, 22, title, "start", "head");
  }
  void text(double x, double y, const std::string& words, const char* anchor = "start",
            const char* kind = "label") {
    body_ += "<text class=\"" + std::string(kind) + "\" x=\"" + fixed(x) + "\" y=\"" + fixed(y) +
             "\" text-anchor=\"" + anchor + "\">" + escapeXml(toUtf8(words)) + "</text>\n";
  }
  void line(const char* kind, double x1, double y1, double x2, double y2) {
    body_ += "<line class=\"" + std::string(kind) + "\" x1=\"" + fixed(x1) + "\" y1=\"" +
             fixed(y1) + "\" x2=\"" + fixed(x2) + "\" y2=\"" + fixed(y2) + "\"/>\n";
  }
  void curve(const char* colour, const std::vector<std::pair<double, double>>& points) {
    body_ += "<polyline class=\"line\" stroke=\"" + std::string(colour) + "\" points=\"";
    for (const auto& [x, y] : points) body_ += fixed(x) + "," + fixed(y) + " ";
    body_ += "\"/>\n";
  }
  void bar(const char* colour, double x, double y, double wide, double high) {
    body_ += "<rect fill=\"" + std::string(colour) + "\" x=\"" + fixed(x) + "\" y=\"" + fixed(y) +
             "\" width=\"" + fixed(wide) + "\" height=\"" + fixed(high) + "\"/>\n";
  }
  // What a colour stands for, one beside the other below the picture.
  void legend(std::size_t place, const char* colour, const std::string& words) {
    const double x = kLeft + 170.0 * static_cast<double>(place);
    bar(colour, x, kHigh - 18, 10, 10);
    text(x + 16, kHigh - 9, words);
  }
  std::string done() && { return std::move(body_) + "</svg>\n"; }

 private:
  std::string body_;
};

constexpr double kPlotWide = kWide - kLeft - kRight, kPlotHigh = kHigh - kTop - kBottom;

// From 10 us to 1 s.
double heightOf(std::int64_t us) {
  constexpr double kLeast = 1, kMost = 6;
  const double power = std::log10(static_cast<double>(std::max<std::int64_t>(us, 1)));
  const double part = (std::clamp(power, kLeast, kMost) - kLeast) / (kMost - kLeast);
  return kTop + kPlotHigh * (1 - part);
}

}  // namespace

std::string latencySvg(const Report& report) {
  if (report.curves.empty()) return "";
  Picture picture("From online's submit to its kernel running, of all bursts");
  constexpr std::pair<std::int64_t, const char*> kLines[] = {
      {10, "10 us"},     {100, "100 us"},     {1'000, "1 ms"},
      {10'000, "10 ms"}, {100'000, "100 ms"}, {1'000'000, "1 s"}};
  for (const auto& [us, words] : kLines) {
    picture.line("grid", kLeft, heightOf(us), kWide - kRight, heightOf(us));
    picture.text(kLeft - 8, heightOf(us) + 4, words, "end");
  }
  picture.line("bound", kLeft, heightOf(kStartP99UsMax), kWide - kRight, heightOf(kStartP99UsMax));
  const auto xOf = [](std::size_t point) {
    return kLeft + kPlotWide * static_cast<double>(point) / (Curve::kPoints - 1);
  };
  for (const std::size_t point : {0U, 25U, 50U, 75U, 99U}) {
    picture.text(xOf(point), kHigh - kBottom + 16, "p" + std::to_string(point), "middle");
  }
  std::size_t place = 0;
  for (const Curve& curve : report.curves) {
    const char* colour = kColours[place % std::size(kColours)];
    std::vector<std::pair<double, double>> points;
    for (std::size_t i = 0; i < curve.us.size(); i++) {
      points.emplace_back(xOf(i), heightOf(curve.us[i]));
    }
    picture.curve(colour, points);
    picture.legend(place++, colour, "behind kernels of " + std::to_string(curve.kernelMs) + " ms");
  }
  return std::move(picture).done();
}

std::string sharesSvg(const Report& report) {
  Picture picture("Shares of the card: wanted, done, counted");
  constexpr std::pair<const char*, const char*> kBars[] = {
      {"wanted_permille", "wanted"},
      {"work_permille", "work done"},
      {"account_permille", "time that the manager counted"}};
  std::vector<const Promise*> shares;
  for (const Promise& promise : report.promises) {
    if (promise.figure("wanted_permille") != nullptr) shares.push_back(&promise);
  }
  if (shares.empty()) return "";
  const auto yOf = [](std::int64_t permille) {
    const double part = static_cast<double>(std::clamp<std::int64_t>(permille, 0, 1'050)) / 1'050;
    return kTop + kPlotHigh * (1 - part);
  };
  for (std::int64_t permille = 0; permille <= 1'000; permille += 250) {
    picture.line("grid", kLeft, yOf(permille), kWide - kRight, yOf(permille));
    picture.text(kLeft - 8, yOf(permille) + 4, std::to_string(permille / 10) + " %", "end");
  }
  const double room = kPlotWide / static_cast<double>(shares.size());
  for (std::size_t i = 0; i < shares.size(); i++) {
    const double from = kLeft + room * (static_cast<double>(i) + 0.15);
    for (std::size_t b = 0; b < std::size(kBars); b++) {
      const Figure* figure = shares[i]->figure(kBars[b].first);
      const double y = yOf(figure == nullptr ? 0 : figure->value);
      const double wide = room * 0.7 / std::size(kBars);
      picture.bar(kColours[b], from + wide * static_cast<double>(b), y, wide * 0.9, yOf(0) - y);
    }
    picture.text(from + room * 0.35, kHigh - kBottom + 16, shares[i]->id, "middle");
  }
  for (std::size_t b = 0; b < std::size(kBars); b++) {
    picture.legend(b, kColours[b], kBars[b].second);
  }
  return std::move(picture).done();
}

std::string pageOf(const Report& report) {
  std::string out =
      "# Isolation report: " + plain(report.head.model) + "\n\n" + countsOf(report) +
      " on this card and driver. Each verdict was measured in this one run; what "
      "could not be measured is not proven. It holds for what the table names, and "
      "for nothing else.\n\n" +
      headTable(report.head) + "\nMade by " + code(report.head.command) +
      ".\n\n## Promises\n\n| promise | verdict | why | figures |\n|---|---|---|---|\n";
  for (const Promise& promise : report.promises) {
    out += "| " + plain(promise.says) + " (" + code(promise.id) + ") | **" +
           std::string(nameOf(promise.verdict)) + "** | " + plain(promise.why) + " | " +
           figuresText(promise) + " |\n";
  }
  if (!report.curves.empty()) {
    out +=
        "\n## How soon online begins\n\nThe dashed line is what is promised of 99 of 100 "
        "bursts.\n\n![From online's submit to its kernel running](" +
        std::string(kLatencyPicture) + ")\n";
  }
  const bool shares = std::ranges::any_of(report.promises, [](const Promise& promise) {
    return promise.figure("wanted_permille") != nullptr;
  });
  if (shares) {
    out +=
        "\n## Shares, wanted and got\n\nWork done is counted by the programs, of what the same "
        "program did without qgpu just before and after.\n\n![Shares](" +
        std::string(kSharesPicture) + ")\n";
  }
  out += "\n## Once more\n\n| promise | command |\n|---|---|\n";
  for (const Promise& promise : report.promises) {
    out += "| " + code(promise.id) + " | " + code(promise.again) + " |\n";
  }
  return out;
}

std::string countsOf(const Report& report) {
  return std::to_string(report.count(Verdict::Proven)) + " of " +
         std::to_string(report.promises.size()) + " promises are proven, " +
         std::to_string(report.count(Verdict::Weaker)) + " weaker, " +
         std::to_string(report.count(Verdict::NotProven)) + " not proven";
}

}  // namespace qgpu::prove
