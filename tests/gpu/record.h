#pragma once
// What the checks on a card found: one JSON line each, at once, and a Markdown page of all.
// A figure is judged only where something was promised; the others are reported.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace qgpu::gpu {

using Json = nlohmann::ordered_json;

enum class Verdict { kMet, kMissed, kReported, kSkipped, kFailed };

struct Finding {
  std::string check;
  std::string wanted = {};  // empty: nothing was promised
  Json figures = Json::object();
  Verdict verdict = Verdict::kReported;
  std::string why = {};  // it was skipped or failed
  std::string of = {};   // which check: the record's word
};

// "NVIDIA H200, all" is "nvidia-h200-all": for names of files and of promises.
std::string inOneWord(const std::string& text);

class Record {
 public:
  void begin(const std::string& check) { check_ = check; }  // whose findings come
  void add(Finding finding);                                // and prints it
  void took(const std::string& check, double seconds);      // that, and prints it
  // The page; `about` are lines on card, driver and machine.
  std::string markdown(const std::string& title, const std::vector<std::string>& about) const;
  bool allMet() const;  // nothing was missed, nothing failed
  const std::vector<Finding>& findings() const { return findings_; }

 private:
  std::string check_;
  std::vector<Finding> findings_;
  std::string took_;  // "quota 20 s, hook 31 s"
};

}  // namespace qgpu::gpu
