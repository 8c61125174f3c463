#pragma once
// The token that makes this process part of a task: QGPU_TOKEN, as `qgpuctl run` and other
// launchers set it, or else the first line of the first file that is there of QGPU_TOKEN_FILE,
// paths joined by ':'. A container's environment is fixed before anybody knows whose container it
// is; its token stands in a file of a folder that is mounted into it. Where that folder is, the
// variables need not be (places.h). A program with more rights than its user believes no variables.

#include <cstddef>

namespace qgpu::guest {

// Whether the environment names a token at all, or this is a container of ours.
bool tokenNamed();

// The path of the manager's socket: QGPU_SOCKET, or a container's own. Nullptr: there is none.
const char* findSocket();

// Whether it stands in a file: then a cluster made the task, and no `qgpuctl run`.
bool tokenInFile();

// A copy of the token as it stands there, of any length below 64. What was read once is also there
// when the environment names none any more, and for children. Nullptr: no file of QGPU_TOKEN_FILE
// is there yet. Not for two threads at once.
const char* findToken();

// The whole file `name` that lies beside the first of the files of tokens where there is one, with
// a NUL behind it. False: there is none, or it is empty or does not fit.
bool readBesideToken(const char* name, char* text, std::size_t size);

}  // namespace qgpu::guest
