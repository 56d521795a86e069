#include "base/process/ancestors.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace mayfly {
namespace {

/// 0 if there is no such process, or the system hides it.
int parent_of(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');  // the name itself may contain anything
  std::istringstream fields(name_end == std::string::npos ? "" : text.substr(name_end + 1));
  char state = 0;
  int parent = 0;
  fields >> state >> parent;
  return fields ? parent : 0;
}

}  // namespace

std::vector<int> ancestors_of(int process) {
  std::vector<int> found;
  for (int at = parent_of(process); at > 0; at = parent_of(at)) {
    found.push_back(at);
  }
  return found;
}

std::vector<int> ancestors_up_to(int ancestor, int process) {
  std::vector<int> found = ancestors_of(process);
  const auto place = std::find(found.begin(), found.end(), ancestor);
  found.erase(place == found.end() ? found.begin() : place + 1, found.end());
  return found;
}

}  // namespace mayfly
