#pragma once

// The fake cloud (tests/fake_cloud) as a child process, one for all tests of an executable.

#include <string>
#include <string_view>

namespace mayfly::cloud_hooks {

class FakeCloud {
 public:
  /// The fake cloud, which the first call starts; it ends with this process. Fails the test if it
  /// cannot start.
  static FakeCloud& get();

  /// An address or key from the first line of its output, for example "gce" or "ca_file".
  [[nodiscard]] std::string operator[](std::string_view name) const;
  /// POST to a control, with a JSON object; returns its JSON answer.
  std::string control(const std::string& name, const std::string& json = "{}");
  /// Forgets machines, faults and requests.
  void reset() { control("reset"); }
  /// The number of requests of a service and operation ("*" = any) since reset().
  int requests(std::string_view service, std::string_view operation);

  FakeCloud(const FakeCloud&) = delete;
  FakeCloud& operator=(const FakeCloud&) = delete;

 private:
  FakeCloud();
  ~FakeCloud();

  int pid_ = 0;
  int input_ = -1;  // the process ends when this is closed
  std::string addresses_;
};

}  // namespace mayfly::cloud_hooks
