#include "services/ctl/help/completion.h"

#include <algorithm>
#include <utility>

#include "actors/base/event_kinds.h"

namespace qgpu::ctl {
namespace {

using More = Completion::More;

// bash makes words of their own of '=' and what is around it.
constexpr const char* kBash = R"(# bash completion of qgpuctl
_qgpuctl() {
  local line cur=${COMP_WORDS[COMP_CWORD]}
  [ "$cur" != = ] || cur=
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files) mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        compopt -o filenames 2>/dev/null ;;
      :programs) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <("${COMP_WORDS[0]}" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _qgpuctl qgpuctl
)";

constexpr const char* kZsh = R"(#compdef qgpuctl
_qgpuctl() {
  local line tab=$'\t'
  local -a lines described
  lines=("${(@f)$("${words[1]}" complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  for line in $lines; do
    case $line in
      :files) _files; return ;;
      :programs) _command_names; return ;;
      *) described+=("${${line%%$tab*}//:/\\:}:${line#*$tab}") ;;
    esac
  done
  _describe qgpuctl described
}
if [ "$funcstack[1]" = _qgpuctl ]; then _qgpuctl "$@"; else compdef _qgpuctl qgpuctl; fi
)";

constexpr const char* kFish = R"(# fish completion of qgpuctl
function __qgpuctl_complete
  set -l typed (commandline -ct)
  test (count $typed) -gt 0; or set typed ''
  set -l words (commandline -opc)
  for line in (qgpuctl complete $words[2..-1] $typed 2>/dev/null)
    switch $line
      case :files
        __fish_complete_path "$typed"
      case :programs
        complete -C "$typed"
      case '*'
        echo $line
    end
  end
end
complete -c qgpuctl -f -a '(__qgpuctl_complete)'
)";

constexpr std::pair<std::string_view, const char*> kScripts[] = {
    {"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};

// What is behind a name of an argument or option is the same in every command.
More behind(const CLI::Option& option) {
  constexpr std::pair<const char*, More> kNames[] = {
      {"TASK", More::Tasks}, {"CARD", More::Cards}, {"TARGET", More::Targets},
      {"task", More::Tasks}, {"card", More::Cards}, {"node", More::Nodes}};
  for (const auto& [name, more] : kNames) {
    if (option.check_name(name) || option.check_lname(name)) return more;
  }
  const std::string type = option.get_type_name();
  for (const char* file : {"FILE", "PATH", "DIR"}) {
    if (type.starts_with(file)) return More::Files;
  }
  return More::None;
}

// The choices of "TEXT:{online,offline}", as the parser shows them.
std::vector<std::string> choicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), shut = type.find('}');
  if (open == std::string::npos || shut == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, shut - open - 1), ',');
}

bool takesValue(const CLI::Option* option) {
  return option != nullptr && option->get_items_expected_max() > 0;
}

class Line {
 public:
  explicit Line(const CLI::App& app) : app_(app), at_(&app) {}

  void pass(const std::string& word) {
    if (value_ != nullptr) {
      if (at_ == &app_) out_.globals.push_back(word);
      value_ = nullptr;
    } else if (word.size() > 1 && word[0] == '-') {
      passOption(word);
    } else if (const CLI::App* sub = command(word)) {
      at_ = sub;
      position_ = 0;
    } else {
      ++position_;
    }
  }

  Completion end(const std::string& typed) {
    out_.typed = typed;
    const std::size_t equals = typed.find('=');
    if (value_ != nullptr) {
      values(*value_, "");
    } else if (isRun() && (position_ > 0 || programs_)) {
      out_.more = position_ > 0 ? More::Files : More::Programs;
    } else if (typed.starts_with("--") && equals != std::string::npos) {
      const CLI::Option* option = find(typed.substr(0, equals));
      if (takesValue(option)) values(*option, typed.substr(0, equals + 1));
    } else if (typed.starts_with('-')) {
      options(*at_);
      if (at_ != &app_) options(app_);
    } else {
      commandsOrArgument();
    }
    return std::move(out_);
  }

 private:
  bool isRun() const { return at_->get_name() == "run"; }
  const CLI::App* command(const std::string& word) const {
    const auto found =
        at_->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; });
    return found.empty() ? nullptr : found.front();
  }
  const CLI::Option* find(const std::string& name) const {
    const CLI::Option* option = at_->get_option_no_throw(name);
    return option != nullptr ? option : app_.get_option_no_throw(name);
  }

  void passOption(const std::string& word) {
    if (word == "--") {
      programs_ = true;
      return;
    }
    const std::size_t equals = word.find('=');
    const CLI::Option* option = find(word.substr(0, equals));
    if (option != nullptr && app_.get_option_no_throw(word.substr(0, equals)) == option) {
      out_.globals.push_back(word);
    }
    if (takesValue(option) && equals == std::string::npos) value_ = option;
  }

  void offer(const std::string& word, const std::string& meaning) {
    if (word.starts_with(out_.typed)) out_.words.push_back({word, meaning});
  }
  void values(const CLI::Option& option, const std::string& before) {
    if (option.check_lname("kind")) {  // too many to stand in the help
      for (const EventKindEntry& kind : kEventKinds) {
        offer(before + std::string(kind.name), std::string(kind.meaning));
      }
    }
    for (const std::string& choice : choicesOf(option)) offer(before + choice, "");
    out_.more = before.empty() ? behind(option) : More::None;
  }
  void options(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
      if (option == app.get_help_ptr() && at_ != &app) continue;
      for (const std::string& name : option->get_lnames()) {
        offer("--" + name, option->get_description());
      }
    }
  }
  void commandsOrArgument() {
    const CLI::App& from = at_->get_name() == "help" ? app_ : *at_;
    for (const CLI::App* sub : from.get_subcommands([](const CLI::App*) { return true; })) {
      offer(sub->get_name(), sub->get_description());
    }
    if (isRun()) out_.more = More::Programs;
    std::size_t position = 0;
    for (const CLI::Option* option : at_->get_options()) {
      if (option->get_positional() && position++ == position_) values(*option, "");
    }
  }

  const CLI::App& app_;
  const CLI::App* at_;                  // the command that was typed so far
  std::size_t position_ = 0;            // of the next argument
  const CLI::Option* value_ = nullptr;  // whose value is next
  bool programs_ = false;               // after `--`
  Completion out_;
};

}  // namespace

Completion complete(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> all;  // "--name", "=", "x" is how bash says "--name=x"
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "=" || all.empty()) {
      all.push_back(words[i]);
    } else if (i + 1 == words.size()) {
      all.emplace_back();
    }
  }
  if (all.empty()) all.emplace_back();
  Line line(app);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) line.pass(all[i]);
  return line.end(all.back());
}

std::vector<std::string> shells() {
  std::vector<std::string> names;
  for (const auto& [name, script] : kScripts) names.emplace_back(name);
  return names;
}

std::string completionScript(std::string_view shell) {
  for (const auto& [name, script] : kScripts) {
    if (name == shell) return script;
  }
  return "";
}

}  // namespace qgpu::ctl
