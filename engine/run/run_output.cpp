#include "engine/run/run_output.hpp"

#include "engine/run/record_json.hpp"

namespace mayfly::engine {

RunOutput::RunOutput(RunDirectory& directory, RunListener& listener,
                     const std::vector<MemberRecord>& members)
    : directory_(directory), listener_(listener) {
  for (const MemberRecord& line : members) {
    journal_.restore(line);
  }
}

RunOutput::Turn::Turn(RunOutput& output)
    : directory(output.directory_),
      listener(output.listener_),
      journal(output.journal_),
      reported_(output.reported_),
      lock_(output.mutex_) {}

bool RunOutput::Turn::failed(const std::string& kind, const json::object& fields,
                             const std::string& cause, const std::string& line) {
  directory.event(kind, fields);
  const bool is_new = reported_[kind].is_new(cause);
  if (is_new) {
    listener.on_event(line);
  }
  return is_new;
}

void RunOutput::Turn::worked(const std::string& kind) {
  reported_[kind].is_over();
}

}  // namespace mayfly::engine
