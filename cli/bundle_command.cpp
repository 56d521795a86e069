// `mayfly bundle`: this program and its libraries in one archive.

#include "cli/commands.hpp"
#include "cloud_hooks/bundle/program_bundle.hpp"

namespace mayfly::cli {

int bundle(const ParsedArguments& arguments, Context& context) {
  if (arguments.positionals.size() != 1) {
    return context.complain("bundle expects the file to write, such as mayfly-worker.tar.gz",
                            kExitUsage);
  }
  const std::string& path = arguments.positionals.front();
  const auto nvidia = arguments.has("nvidia-libraries")
                          ? cloud_hooks::NvidiaLibraries::kPacked
                          : cloud_hooks::NvidiaLibraries::kOfTheServer;
  if (Result<void> packed = cloud_hooks::pack_own_program(path, nvidia); !packed.ok()) {
    return context.complain(packed.error());
  }
  const Result<cloud_hooks::BundleFile> file = cloud_hooks::open_bundle(path);
  if (!file.ok()) {
    return context.complain(file.error());
  }
  context.out << file.value().sha256 << "  " << path << "\n";
  return kExitDone;
}

}  // namespace mayfly::cli
