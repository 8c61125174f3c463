#pragma once
// What the checks on a card found: one JSON line each, at once, and a Markdown page of all.
// A figure is judged only where something was promised; the others are reported. What is met by a
// weaker rung than the best says so: by gates alone (its figure "suspend"), by the library alone
// (its figure "isolation").

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/prove/judge.h"

namespace qgpu::gpu {

using Json = nlohmann::ordered_json;

enum class Verdict { kMet, kWeaker, kMissed, kReported, kSkipped, kFailed };

struct Finding {
  std::string check;
  std::string wanted = {};  // empty: nothing was promised
  Json figures = Json::object();
  Verdict verdict = Verdict::kReported;
  std::string why = {};  // it is weaker, was skipped or failed
  std::string of = {};   // which check: the record's word
};

// "NVIDIA H200, all" is "nvidia-h200-all": for names of files and of promises.
std::string inOneWord(const std::string& text);

class Record {
 public:
  void begin(const std::string& check) { check_ = check; }  // whose findings come
  void add(Finding finding);                                // and prints it
  // Every start of online behind kernels of one length, for the plot.
  void addStarts(prove::OnlineFigures starts) { starts_.push_back(std::move(starts)); }
  void took(const std::string& check, double seconds);  // that, and prints it
  // The page; `about` are lines on card, driver and machine.
  std::string markdown(const std::string& title, const std::vector<std::string>& about) const;
  bool allMet() const;  // nothing was missed, nothing failed
  const std::vector<Finding>& findings() const { return findings_; }
  const std::vector<prove::OnlineFigures>& starts() const { return starts_; }

 private:
  std::string check_;
  std::vector<Finding> findings_;
  std::vector<prove::OnlineFigures> starts_;
  std::string took_;  // "quota 20 s, hook 31 s"
};

}  // namespace qgpu::gpu
