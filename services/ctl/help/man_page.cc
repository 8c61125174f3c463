#include "services/ctl/help/man_page.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace qgpu::ctl {
namespace {

// A text as roff reads it: no hyphens for minus signs, and no line that begins as a request does.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((out.empty() || out.back() == '\n') && (c == '.' || c == '\'')) out += "\\&";
    if (c == '-' || c == '\\') out += '\\';
    out += c == '\\' ? 'e' : c;
  }
  return out;
}

std::string bold(const std::string& text) {
  return "\\fB" + plain(text) + "\\fR";
}
std::string italic(const std::string& text) {
  return "\\fI" + plain(text) + "\\fR";
}

// "GIB:1 to 16" and "TEXT:{a,b}" show what is behind the colon.
std::string valueOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t colon = type.find(':');
  if (colon == std::string::npos) return italic(type);
  if (type[colon + 1] == '{') return plain(type.substr(colon + 1));
  return italic(type.substr(0, colon)) + " (" + plain(type.substr(colon + 1)) + ")";
}

void writeOption(std::string& page, const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) names += bold("-" + name) + ", ";
  for (const std::string& name : option.get_lnames()) names += bold("--" + name) + ", ";
  if (names.size() >= 2) names.resize(names.size() - 2);
  if (option.get_positional()) names = italic(option.get_name(true));
  page += ".TP\n" + names;
  if (!option.get_positional() && option.get_items_expected_max() > 0)
    page += " " + valueOf(option);
  page += "\n" + plain(option.get_description()) + "\n";
}

void writeOptions(std::string& page, const CLI::App& app) {
  for (const bool positional : {true, false}) {
    for (const CLI::Option* option : app.get_options()) {
      if (option == app.get_help_ptr() || option->get_positional() != positional) continue;
      writeOption(page, *option);
    }
  }
}

void writeCommand(std::string& page, const CLI::App& command, const std::string& before) {
  const std::string name = before + command.get_name();
  const auto subs = command.get_subcommands([](const CLI::App*) { return true; });
  std::string usage = bold(name);
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string word = italic(option->get_name(true));
    usage += option->get_required() ? " " + word : " [" + word + "]";
  }
  if (command.get_name() == "run") usage += " \\-\\- " + italic("CMD") + "...";
  page += ".SS " + usage + "\n" + plain(command.get_description()) + "\n";
  writeOptions(page, command);
  for (const CLI::App* sub : subs) writeCommand(page, *sub, name + " ");
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace

std::string manPage(const CLI::App& app, const std::string& footer, const std::string& version) {
  std::string page = ".TH QGPUCTL 1 \"\" \"qgpu " + version + "\" \"User Commands\"\n";
  const std::string about = app.get_description();
  page += ".SH NAME\nqgpuctl \\- " + plain(about.substr(about.find(": ") + 2)) + "\n";
  page += ".SH SYNOPSIS\n" + bold("qgpuctl") + " [" + italic("OPTION") + "]... " +
          italic("COMMAND") + " [" + italic("OPTION") + "]...\n";
  page += ".SH OPTIONS\nBefore or after every command.\n";
  writeOptions(page, app);
  std::vector<std::string> groups;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (std::ranges::count(groups, sub->get_group()) == 0) groups.push_back(sub->get_group());
  }
  for (const std::string& group : groups) {
    page += ".SH \"" + upper(plain(group)) + "\"\n";
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
      if (sub->get_group() == group) writeCommand(page, *sub, "");
    }
  }
  page += ".SH \"WHOM IT ASKS, EXAMPLES, EXIT STATUS\"\n.nf\n" + plain(footer) + ".fi\n";
  return page;
}

}  // namespace qgpu::ctl
