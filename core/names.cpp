#include "reel/core/names.h"

#include <functional>
#include <mutex>
#include <set>
#include <string>

namespace reel::detail {

const char* interned(std::string_view name) {
  thread_local constinit const char* last = "";  // often the same again: no lock, no search
  if (name == last) return last;
  static std::mutex mutex;
  static auto* const names = new std::set<std::string, std::less<>>;  // threads may end after static objects
  const std::lock_guard lock(mutex);
  auto place = names->find(name);  // without an allocation for a name that is there
  if (place == names->end()) place = names->emplace(name).first;
  return last = place->c_str();
}

}  // namespace reel::detail
