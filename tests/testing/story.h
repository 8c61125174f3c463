#pragma once
// Stories: the tests of a file STORY_test.cc each. All stories of a room are one program, since to
// read their headers and to link them costs more than what they say themselves; ctest runs it once
// for each (qgpu_story() in tests/CMakeLists.txt).
//
//   PROGRAM STORY [GoogleTest's options]
//
// A filter that begins with '-' leaves out some tests of the story; any other is taken as it is.

#include <string>

namespace qgpu::testing {

// What a story needs before its first test and before any thread: an object of its file. `enter`
// has the program's own arguments, with the story as the first, and says why the story is skipped;
// empty: it is not.
struct Before {
  using Enter = std::string (*)(char** argv);
  Before(const char* story, Enter enter);
};

}  // namespace qgpu::testing
