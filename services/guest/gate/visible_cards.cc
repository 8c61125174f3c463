#include "services/guest/gate/visible_cards.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "services/guest/gate/token.h"

namespace qgpu::guest {
namespace {

constexpr std::size_t kFileMax = 3 * kVisibleMax;
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

// One entry of a list joined by ','.
struct Entry {
  const char* begin;
  std::size_t length;
};

// The entry at `at`, which moves behind it; a length of 0: there is none, or it is empty.
Entry nextEntry(const char*& at) {
  while (*at == ' ') ++at;
  Entry entry{at, strcspn(at, ",")};
  at += entry.length + (at[entry.length] == ',' ? 1 : 0);
  while (entry.length != 0 && entry.begin[entry.length - 1] == ' ') --entry.length;
  return entry;
}

bool isNumber(const Entry& entry) {
  return entry.length != 0 && entry.length <= 4 &&
         strspn(entry.begin, "0123456789") >= entry.length;
}

// The card that `asked` means among `own`; a length of 0: none.
Entry find(const Entry& asked, const char* own) {
  const bool byNumber = isNumber(asked);
  const unsigned long number = byNumber ? strtoul(asked.begin, nullptr, 10) : 0;
  unsigned long at = 0;
  for (const char* rest = own; *rest; ++at) {
    const Entry card = nextEntry(rest);
    const bool named = asked.length <= card.length && asked.length > 4 &&
                       strncmp(asked.begin, card.begin, asked.length) == 0;
    if (byNumber ? at == number : named) return card;
  }
  return {own, 0};
}

// Each line NAME=VALUE of `text`, which is taken apart.
void applyLines(char* text) {
  for (char* line = text; *line;) {
    char* end = line + strcspn(line, "\n");
    char* next = *end ? end + 1 : end;
    *end = 0;
    char* equals = strchr(line, '=');
    if (equals) {
      *equals = 0;
      char chosen[kVisibleMax];
      const char* value = equals + 1;
      if (strcmp(line, kVisible) != 0) {
        setenv(line, value, 1);
      } else if (chooseCards(getenv(kVisible), value, chosen, sizeof chosen)) {
        setenv(line, chosen, 1);
      }
    }
    line = next;
  }
}

__attribute__((constructor)) void applyAtLoad() {
  applyEnvironmentFile();
}

}  // namespace

bool chooseCards(const char* asked, const char* own, char* out, std::size_t size) {
  if (!asked) {
    if (strlen(own) >= size) return false;
    strcpy(out, own);
    return true;
  }
  std::size_t used = 0;
  for (const char* rest = asked; *rest;) {
    const Entry card = find(nextEntry(rest), own);
    if (card.length == 0) break;
    if (used + card.length + 2 > size) return false;
    if (used != 0) out[used++] = ',';
    memcpy(out + used, card.begin, card.length);
    used += card.length;
  }
  out[used] = 0;
  return true;
}

void applyEnvironmentFile() {
  char text[kFileMax];
  if (readBesideToken("environment", text, sizeof text)) applyLines(text);
}

}  // namespace qgpu::guest
