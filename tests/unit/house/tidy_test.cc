// The house rules over the real tree, and each rule over a sample that breaks it.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/unit/house/tidy_pointers.h"
#include "tests/unit/house/tidy_rules.h"
#include "tests/unit/house/tidy_text.h"

namespace qgpu::tidy {
namespace {

namespace fs = std::filesystem;

// --- the tree ---

// What builds and programs leave at the root; .gitignore has the same names.
bool isLeftOver(const std::string& name) {
  return name.starts_with("build") || name == "demo.json" || name == "compile_commands.json" ||
         name == ".cache";
}

bool isSource(const fs::path& path) {
  static const std::set<std::string> kEndings = {
      ".h",       ".cc", ".capnp", ".cmake", ".cl",  ".md",   ".sh", ".txt", ".json", ".yaml",
      ".service", ".ts", ".tsx",   ".mjs",   ".css", ".html", ".py", ".yml", ".toml"};
  return kEndings.contains(path.extension().string()) || path.filename() == "dev";
}

SourceFile readSource(const fs::path& root, const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  SourceFile file;
  file.path = path.lexically_relative(root).generic_string();
  file.text.assign(std::istreambuf_iterator<char>(in), {});
  file.hasOwnHeader = fs::exists(fs::path(path).replace_extension(".h"));
  return file;
}

std::vector<std::string> topOf(const fs::path& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (!isLeftOver(name)) names.push_back(name);
  }
  return names;
}

std::vector<fs::path> sourcesOf(const fs::path& root) {
  std::vector<fs::path> sources;
  for (const std::string& name : topOf(root)) {
    if (name == ".git") continue;
    std::vector<fs::path> paths = {root / name};
    if (fs::is_directory(root / name)) {
      paths.assign(fs::recursive_directory_iterator(root / name), {});
    }
    for (const fs::path& path : paths) {
      if (fs::is_regular_file(path) && isSource(path)) sources.push_back(path);
    }
  }
  return sources;
}

TEST(Tidy, TheTreeKeepsTheRulesOfTheHouse) {
  const fs::path root = QGPU_SOURCE_ROOT;
  std::vector<std::string> paths;
  std::vector<SourceFile> files;
  for (const fs::path& path : sourcesOf(root)) {
    files.push_back(readSource(root, path));
    paths.push_back(files.back().path);
    for (const Finding& f : checkFile(files.back())) {
      ADD_FAILURE() << f.path << ":" << f.line << ": " << f.rule << ": " << f.what;
    }
  }
  for (const Finding& f : checkFolderCycles(files)) ADD_FAILURE() << f.path << ": " << f.what;
  for (const Finding& f : checkRoomSizes(paths)) ADD_FAILURE() << f.path << ": " << f.what;
  for (const Finding& f : checkTop(topOf(root))) ADD_FAILURE() << f.path << ": " << f.what;
  EXPECT_GT(files.size(), 50u) << "the tree was not found at " << root;
}

// Not to folders: the site that is made of the documents has no page for one.
TEST(Tidy, LinksOfDocumentsLeadToFiles) {
  const fs::path root = QGPU_SOURCE_ROOT;
  std::size_t links = 0;
  for (const fs::path& path : sourcesOf(root)) {
    if (path.extension() != ".md") continue;
    for (const Pointer& link : linksOf(readSource(root, path).text)) {
      ++links;
      EXPECT_TRUE(fs::is_regular_file(path.parent_path() / link.target))
          << path << ":" << link.line << ": there is no file " << link.target;
    }
  }
  EXPECT_GT(links, 50u);
}

TEST(Tidy, TheSiteNamesEachDocumentOnceInTheOrderOfTheIndex) {
  const fs::path root = QGPU_SOURCE_ROOT;
  const std::vector<std::string> named =
      navigationOf(readSource(root, root / "deploy/mkdocs.yaml").text);
  for (const std::string& page : named) {
    EXPECT_TRUE(fs::is_regular_file(root / page)) << "deploy/mkdocs.yaml: there is no " << page;
  }
  for (const fs::path& path : sourcesOf(root)) {
    const fs::path page = path.lexically_relative(root);
    const bool document = *page.begin() == "docs" || !page.has_parent_path();
    if (page.extension() != ".md" || !document) continue;
    EXPECT_EQ(std::count(named.begin(), named.end(), page), 1) << "deploy/mkdocs.yaml: " << page;
  }
  std::vector<std::string> index;
  for (const Pointer& link : linksOf(readSource(root, root / "docs/index.md").text)) {
    index.push_back(("docs" / fs::path(link.target)).lexically_normal());
  }
  std::vector<std::string> inOrder;
  std::copy_if(named.begin(), named.end(), std::back_inserter(inOrder), [&](const auto& page) {
    return std::find(index.begin(), index.end(), page) != index.end();
  });
  EXPECT_EQ(inOrder, index);
  EXPECT_GT(index.size(), 10u);
}

TEST(Tidy, WhatCodeCitesIsALinkTarget) {
  const fs::path root = QGPU_SOURCE_ROOT;
  std::set<std::string> known = {"c11", "p50", "p99"};  // a language and percentiles
  for (const char* page : {"docs/invariants.md", "docs/hazards.md"}) {
    for (const std::string& id : anchorsOf(readSource(root, root / page).text)) {
      EXPECT_TRUE(known.insert(id).second) << page << ": " << id << " stands there twice";
    }
  }
  std::size_t citations = 0;
  for (const fs::path& path : sourcesOf(root)) {
    if (path.extension() != ".h" && path.extension() != ".cc") continue;
    for (const Pointer& citation : citationsOf(readSource(root, path).text)) {
      ++citations;
      EXPECT_TRUE(known.contains(citation.target))
          << path << ":" << citation.line << ": docs/ has no target " << citation.target;
    }
  }
  EXPECT_GT(citations, 500u);
}

TEST(Tidy, TestsThatAPageNamesAreThere) {
  const fs::path root = QGPU_SOURCE_ROOT;
  static const std::regex kTest(R"(TEST\w*\(\s*(\w+),\s*(\w+)\))");
  static const std::regex kNamed(R"(`([A-Z]\w+)\.([A-Z]\w+)(/\w+)?`)");
  std::set<std::string> there;
  for (const fs::path& path : sourcesOf(root)) {
    if (path.extension() != ".cc") continue;
    const std::string text = readSource(root, path).text;
    for (std::sregex_iterator at(text.begin(), text.end(), kTest), end; at != end; ++at) {
      there.insert((*at)[1].str() + "." + (*at)[2].str());
    }
  }
  const std::string page = readSource(root, root / "docs/internals/reported.md").text;
  std::size_t named = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), kNamed), end; at != end; ++at, ++named) {
    const std::string test = (*at)[1].str() + "." + (*at)[2].str();
    EXPECT_TRUE(there.contains(test)) << "docs/internals/reported.md: no test " << test;
  }
  EXPECT_GT(named, 80u);
  const std::string checks = readSource(root, root / "tests/kubernetes/checks.sh").text +
                             readSource(root, root / "tests/kubernetes/several_nodes.sh").text;
  static const std::regex kCheck(R"(`(check_[a-z_]+)`)");
  for (std::sregex_iterator at(page.begin(), page.end(), kCheck), end; at != end; ++at) {
    EXPECT_NE(checks.find("\n" + (*at)[1].str() + "() {"), std::string::npos) << (*at)[1];
  }
}

// A name that is misspelt there would be a test that never runs, or one that does not run twice.
TEST(Tidy, WhatIsSaidToJudgeByTimeIsATest) {
  const fs::path root = QGPU_SOURCE_ROOT;
  std::string lists, tests;
  for (const auto& entry : fs::recursive_directory_iterator(root / "tests")) {
    const fs::path& path = entry.path();
    if (path.extension() == ".cmake" || path.filename() == "CMakeLists.txt") {
      lists += readSource(root, path).text;
    } else if (path.string().ends_with("_test.cc")) {
      tests += readSource(root, path).text;
    }
  }
  const std::regex named(R"((TIMING|_timing)[ \n]+((\w+\.\w+[ \n]*)+)\))");
  std::size_t found = 0;
  for (std::sregex_iterator at(lists.begin(), lists.end(), named), end; at != end; ++at) {
    std::istringstream names((*at)[2]);
    for (std::string name; names >> name; ++found) {
      const std::size_t dot = name.find('.');
      const std::string words = "(" + name.substr(0, dot) + ", " + name.substr(dot + 1) + ")";
      EXPECT_NE(tests.find(words), std::string::npos) << "no TEST" << words;
    }
  }
  EXPECT_GT(found, 10u);
}

// --- the rules ---

std::vector<std::string> rulesBroken(const std::string& path, const std::string& text,
                                     bool hasOwnHeader = false) {
  std::vector<std::string> rules;
  for (const Finding& f : checkFile({path, text, hasOwnHeader})) rules.push_back(f.rule);
  return rules;
}

std::string linesOfCode(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "  f();\n";
  return text;
}

using Rules = std::vector<std::string>;

TEST(TidyRules, KeepTheLayersApart) {
  const Rules layering = {"layering"};
  EXPECT_EQ(rulesBroken("runtime/a.cc", "#include \"actors/card.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("runtime/a.cc", "#include \"services/api/commands/a.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("actors/a.cc", "#include \"store/sqlite_store.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("store/a.cc", "#include \"actors/card.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("services/ctl/a.cc", "#include \"tests/unit/a.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("services/ctl/a.cc", "#include \"store/sqlite_store.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("services/daemons/a.cc", "#include \"store/sqlite_store.h\"\n"), Rules());
  EXPECT_EQ(rulesBroken("services/web/a.cc", "#include \"actors/model.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("services/ctl/a.cc", "#include \"actors/node/node_actor.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("services/base/a.cc", "#include \"services/api/commands/a.h\"\n"),
            layering);
  EXPECT_EQ(rulesBroken("services/new/a.cc", "#include \"services/base/a.h\"\n"), Rules{"no-room"});
  EXPECT_EQ(rulesBroken("actors/node/a.cc", "#include \"actors/scheduler/a.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("actors/member/a.cc", "#include \"actors/node/a.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("actors/base/a.cc", "#include \"actors/card/a.h\"\n"), layering);
  EXPECT_EQ(rulesBroken("actors/node/a.cc", "#include \"actors/base/a.h\"\n"), Rules());
  EXPECT_EQ(rulesBroken("tests/unit/a.cc", "#include \"store/sqlite_store.h\"\n"), Rules());
  EXPECT_EQ(rulesBroken("store/a.cc", "#include \"b.h\"\n"), Rules{"root-include"});
  EXPECT_EQ(rulesBroken("store/a.cc", "// #include \"actors/card.h\"\n"), Rules());
}

TEST(TidyRules, TheMatrixOfRoomsHasNoCycle) {
  for (const Finding& f : checkRows()) ADD_FAILURE() << f.path << ": " << f.what;
}

TEST(TidyRules, NoFoldersStandOnEachOther) {
  std::vector<SourceFile> files = {{"services/a/x.cc", "#include \"services/b/x.h\"\n"},
                                   {"services/b/x.h", "#include \"services/b/c/x.h\"\n"},
                                   {"services/b/c/x.h", "#include \"services/d/x.h\"\n"}};
  EXPECT_TRUE(checkFolderCycles(files).empty());
  files.push_back({"services/b/c/y.cc", "#include \"services/b/x.h\"\n"});
  ASSERT_EQ(checkFolderCycles(files).size(), 2u);
  EXPECT_EQ(checkFolderCycles(files)[0].path, "services/b");
  EXPECT_EQ(checkFolderCycles(files)[1].path, "services/b/c");
}

TEST(TidyRules, NoRoomIsTooFull) {
  std::vector<std::string> paths;
  for (int i = 0; i < 30; ++i) paths.push_back("services/a/" + std::to_string(i) + ".cc");
  paths.push_back("services/a/CMakeLists.txt");
  EXPECT_TRUE(checkRoomSizes(paths).empty());
  paths.push_back("services/a/b.h");
  ASSERT_EQ(checkRoomSizes(paths).size(), 1u);
  EXPECT_EQ(checkRoomSizes(paths)[0].path, "services/a");
  for (int i = 0; i < 31; ++i) paths.push_back("bench/" + std::to_string(i) + ".cc");
  EXPECT_EQ(checkRoomSizes(paths).size(), 2u) << "of tests and benches, too";
}

TEST(TidyRules, KeepThirdPartyHeadersAtHome) {
  const Rules home = {"home"};
  EXPECT_EQ(rulesBroken("services/a.cc", "#include <uv.h>\n"), home);
  EXPECT_EQ(rulesBroken("runtime/a.cc", "#include <sqlite3.h>\n"), home);
  EXPECT_EQ(rulesBroken("runtime/loop.cc", "#include <kj/async-io.h>\n"), home);
  EXPECT_EQ(rulesBroken("runtime/kj/bridge.cc", "#include <kj/async-io.h>\n"), Rules());
  EXPECT_EQ(rulesBroken("services/a.cc", "#include <spdlog/spdlog.h>\n"), home);
  EXPECT_EQ(rulesBroken("runtime/log.cc", "#include <spdlog/spdlog.h>\n"), Rules());
  EXPECT_EQ(rulesBroken("tests/unit/a.cc", "#include <sqlite3.h>\n"), Rules());
}

TEST(TidyRules, KeepDriversStandInsFromTheProductsDeclarations) {
  const Rules standIn = {"stand-in"};
  for (const char* header : {"rm_abi.h", "rm_controls.h", "cuda_abi.h", "cuda_calls.h"}) {
    const std::string text = std::string("#include \"services/guest/") + header + "\"\n";
    EXPECT_EQ(rulesBroken("tests/rm_stand_in/a.cc", text), standIn);
    EXPECT_EQ(rulesBroken("tests/cuda_stand_in/a.cc", text), standIn);
    EXPECT_EQ(rulesBroken("tests/unit/a.cc", text), Rules());
  }
  EXPECT_EQ(rulesBroken("tests/rm_stand_in/a.cc", "#include \"runtime/check.h\"\n"), Rules());
}

TEST(TidyRules, KeepTheCoresPure) {
  const Rules pure = {"pure-core"};
  EXPECT_EQ(rulesBroken("actors/arbiter/arbiter.cc", "#include \"runtime/actor.h\"\n"), pure);
  EXPECT_EQ(rulesBroken("actors/ledger/ledger.cc", "#include \"schema/rows.capnp.h\"\n"),
            (Rules{"layering", "pure-core"}));
  EXPECT_EQ(rulesBroken("actors/arbiter/run_queue.cc", "#include <sys/time.h>\n"), pure);
  EXPECT_EQ(rulesBroken("actors/arbiter/share_meter.cc",
                        "#include \"actors/arbiter/arbiter.h\"\n#include \"runtime/units.h\"\n"
                        "#include <vector>\n"),
            Rules());
}

TEST(TidyRules, LimitFunctionsAndLinesAndNoFile) {
  EXPECT_EQ(rulesBroken("services/a.cc", linesOfCode(5'000)), Rules());
  EXPECT_EQ(rulesBroken("services/a.cc", "void g() {\n" + linesOfCode(68) + "}\n"), Rules());
  EXPECT_EQ(rulesBroken("services/a.cc", "void g() {\n" + linesOfCode(69) + "}\n"),
            Rules{"function-length"});
  EXPECT_EQ(rulesBroken("services/a.cc", "// " + std::string(98, 'x') + "\n"), Rules{"columns"});
  EXPECT_EQ(rulesBroken("services/a.cc", "// " + std::string(97, 'x') + "\n"), Rules());
}

TEST(TidyRules, LookAtFormsOfFunctions) {
  const std::string body = linesOfCode(70) + "}\n";
  for (const std::string head :
       {"namespace {\nint f(\n    int a) {\n", "class A {\n public:\n  A() : a_{1}, b_(2) {\n",
        "struct stat g() {\n", "TEST(A, B) {\n", "auto operator<=>(const A&) const {\n",
        "template <typename T>\nvoid h(T t) {\n", "#define X(a) { \\\n a {\nvoid k() {\n"}) {
    EXPECT_EQ(rulesBroken("services/a.cc", head + body), Rules{"function-length"}) << head;
  }
  for (const std::string head :
       {"namespace a {\n", "class A {\n", "constexpr int k[] = {\n", "extern \"C\" {\n",
        "enum class E {\n", "MACRO(a)\nnamespace b {\n"}) {
    EXPECT_EQ(rulesBroken("services/a.cc", head + body), Rules()) << head;
  }
  const auto functions = functionsOf("int a;\n\nint f() {\n  return '{';  // {\n}\nint g() {}\n");
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].line, 3);
  EXPECT_EQ(functions[0].length, 3);
  EXPECT_EQ(functions[1].line, 6);
}

TEST(TidyRules, AskHeadersToSayWhatTheyAre) {
  const std::string good = "#pragma once\n// What this is,\n// and why.\n";
  EXPECT_EQ(rulesBroken("store/a.h", good), Rules());
  EXPECT_EQ(rulesBroken("store/a.h", "#pragma once\n#include <vector>\n\n"), Rules{"paragraph"});
  const std::string small = "#pragma once\n// What this is.\n";
  EXPECT_EQ(rulesBroken("store/a.h", small), Rules());
  EXPECT_EQ(rulesBroken("store/a.h", small + linesOfCode(60)), Rules{"paragraph"});
  EXPECT_EQ(rulesBroken("store/a.h", "#ifndef A_H\n#define A_H\n#endif\n"), Rules{"pragma"});
  EXPECT_EQ(rulesBroken("services/wire/gate_abi.h", "#ifndef A_H\n#endif\n"), Rules());
}

TEST(TidyRules, AskSourcesToIncludeTheirHeaderFirst) {
  const std::string own = "#include \"store/a.h\"\n";
  EXPECT_EQ(rulesBroken("store/a.cc", own + "#include <vector>\n", true), Rules());
  EXPECT_EQ(rulesBroken("store/a.cc", "#include <vector>\n" + own, true), Rules{"own-header"});
  EXPECT_EQ(rulesBroken("store/a.cc", "int a;\n", true), Rules{"own-header"});
  EXPECT_EQ(rulesBroken("store/a.cc", "#include <vector>\n", false), Rules());
}

TEST(TidyRules, BanWordsWhereDecisionsAreMade) {
  for (const char* line :
       {"throw 1;", "try {", "catch (...) {", "std::shared_ptr<int> p;", "auto* p = new int;"}) {
    EXPECT_EQ(rulesBroken("actors/a.cc", std::string(line) + "\n"), Rules{"banned-word"}) << line;
    EXPECT_EQ(rulesBroken("store/a.cc", std::string(line) + "\n"), Rules{"banned-word"}) << line;
    EXPECT_EQ(rulesBroken("services/a.cc", std::string(line) + "\n"), Rules()) << line;
  }
  EXPECT_EQ(rulesBroken("actors/a.cc", "// We try; \"throw\".\nf(\"new\"); newest(); retry();\n"),
            Rules());
}

TEST(TidyRules, BanClocksChanceAndSleeps) {
  for (const char* line :
       {"rand();", "std::random_device d;", "time(nullptr);", "std::time(0);",
        "std::chrono::system_clock::now();", "std::chrono::steady_clock::now();"}) {
    EXPECT_EQ(rulesBroken("actors/a.cc", std::string(line) + "\n"), Rules{"determinism"}) << line;
    EXPECT_EQ(rulesBroken("tests/unit/a.cc", std::string(line) + "\n"), Rules{"determinism"});
    EXPECT_EQ(rulesBroken("runtime/a.cc", std::string(line) + "\n"), Rules()) << line;
    EXPECT_EQ(rulesBroken("bench/a.cc", std::string(line) + "\n"), Rules()) << line;
  }
  EXPECT_EQ(rulesBroken("actors/a.cc", "turn.time(); a->time(); lifetime(); runtime();\n"),
            Rules());
  const std::string map = "std::unordered_map<int, int> m;";
  EXPECT_EQ(rulesBroken("actors/a.cc", map + "\n"), Rules{"determinism"});
  EXPECT_EQ(rulesBroken("actors/a.cc", map + "  // never iterated\n"), Rules());
  EXPECT_EQ(rulesBroken("tests/unit/a.cc", "std::this_thread::sleep_for(a);\n"), Rules{"sleep"});
}

TEST(TidyRules, KeepTextClean) {
  EXPECT_EQ(rulesBroken("dev", "\techo\n"), Rules{"tab"});
  EXPECT_EQ(rulesBroken("README.md", "word \n"), Rules{"trailing"});
  EXPECT_EQ(rulesBroken("README.md", "word\r\n"), Rules{"trailing"});
  EXPECT_EQ(rulesBroken("README.md", "word"), Rules{"newline"});
  for (const char* word : {"TO"
                           "DO",
                           "FIX"
                           "ME",
                           "XX"
                           "X",
                           "HA"
                           "CK"}) {
    EXPECT_EQ(rulesBroken("README.md", std::string("later: ") + word + "\n"), Rules{"promise"});
  }
  EXPECT_EQ(rulesBroken("dev", "mktemp -d /tmp/a.XXXXXX\n"), Rules());
  EXPECT_EQ(rulesBroken("dev", std::string("cd /wo") + "rk/main\n"), Rules{"machine-path"});
  EXPECT_EQ(rulesBroken("schema/a.py", "x\n"), Rules{"schema-only"});
}

TEST(TidyRules, KeepDeadTermsOutOfCommentsAndNames) {
  const std::string name = "Kubelet" + std::string("De") + "sk";
  const Rules dead = {"dead-term"};
  EXPECT_EQ(rulesBroken("services/a.cc", "class " + name + ";\n"), dead);
  EXPECT_EQ(rulesBroken("services/a.cc", "// Its like" + std::string("wise.\n")), dead);
  EXPECT_EQ(rulesBroken("services/a.cc", "int lad" + std::string("der_at = 0;\n")), dead);
  EXPECT_EQ(rulesBroken("schema/a.capnp", "# Surround" + std::string("ings\n")), dead);
  EXPECT_EQ(rulesBroken("docs/a.md", "At your de" + std::string("sk.\n")), Rules());
  EXPECT_EQ(rulesBroken("services/a.cc", "desktop(); likeWiseOnes(); void buriedless();\n"),
            Rules());
}

TEST(TidyRules, KeepReasonsOfEventsInTheirCatalogue) {
  const std::string line = "tell(\"QGPU" + std::string("Bored\");\n");
  EXPECT_EQ(rulesBroken("services/a.cc", line), Rules{"event-reason"});
  EXPECT_EQ(rulesBroken("services/kubernetes/pods/event_reasons.h",
                        "#pragma once\n// What it is.\n" + line),
            Rules());
  EXPECT_EQ(rulesBroken("tests/unit/a.cc", line), Rules());
  EXPECT_EQ(rulesBroken("services/a.cc", "getenv(\"QGPU_SERVER\");\n"), Rules());
}

TEST(TidyRules, KeepTheFrontPageShort) {
  EXPECT_EQ(rulesBroken("README.md", std::string(6'143, 'x') + "\n"), Rules());
  EXPECT_EQ(rulesBroken("README.md", std::string(6'144, 'x') + "\n"), Rules{"front-page"});
  EXPECT_EQ(rulesBroken("docs/concepts.md", std::string(6'144, 'x') + "\n"), Rules());
}

TEST(TidyRules, KnowTheRoomsOfTheHouse) {
  EXPECT_TRUE(checkTop({"actors", "README.md", "dev"}).empty());
  EXPECT_EQ(checkTop({"actors", "misc"}).size(), 1u);
}

TEST(TidyText, PartsNamesIntoTheirWords) {
  const std::vector<std::string_view> parts = {"a",    "Gate", "Word",   "of", "bell",
                                               "ring", "HTTP", "Server", "x"};
  EXPECT_EQ(partsOf("aGateWord of bell_ring 4 HTTPServer; x"), parts);
}

TEST(TidyText, TellsCodeFromCommentsAndLiterals) {
  EXPECT_EQ(codeOf("a // b\n\"c\" 'd' /* e\nf */ g"), "a     \n            \n     g");
  EXPECT_EQ(codeOf("R\"(x \" y)\" z"), "R          z");
  EXPECT_EQ(codeOf("1'000'000 a"), "1'000'000 a");
  EXPECT_EQ(codeOf("\"a\\\"b\" c"), "       c");
}

std::vector<std::string> targetsOf(const std::vector<Pointer>& pointers) {
  std::vector<std::string> targets;
  for (const Pointer& pointer : pointers) targets.push_back(pointer.target);
  return targets;
}

using Targets = std::vector<std::string>;

TEST(TidyPointers, FindsWhatCodeCites) {
  EXPECT_EQ(targetsOf(citationsOf("// Kept: A4, (D1); C7_Harms HAZARDS 23 HAZARDS9_Reads\n")),
            (Targets{"a4", "d1", "c7", "hazards-23", "hazards-9"}));
  EXPECT_EQ(targetsOf(citationsOf("B4 XA4 xA4 _A4 4A4 A4b A100 P2P A HAZARDS HAZARDS of 9\n")),
            Targets());
  const auto found = citationsOf("f();\n// A10\n");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].line, 2);
}

TEST(TidyPointers, FindsWhatDocumentsHaveAndLinkTo) {
  EXPECT_EQ(anchorsOf("- <a id=\"a4\"></a>**A4**\n<a id=\"b\"></a><a id=\"c\"></a>"),
            (Targets{"a4", "b", "c"}));
  EXPECT_EQ(targetsOf(linksOf("[a](b.md), [c](../d.md#e) and\n[f](g)\n")),
            (Targets{"b.md", "../d.md", "g"}));
  EXPECT_EQ(targetsOf(linksOf("[a](https://a.example/) [b](#c) `[d](e)`\n    [f](g)\n"
                              "```\n[h](i)\n```\n")),
            Targets());
}

TEST(TidyPointers, FindsWhatTheSiteNames) {
  EXPECT_EQ(navigationOf("- z.md\nnav:\n  - A:\n      - b.md\n      - C d, e: f/g.md\n"),
            (Targets{"b.md", "f/g.md"}));
  EXPECT_EQ(navigationOf("- z.md\n"), Targets());
}

}  // namespace
}  // namespace qgpu::tidy
