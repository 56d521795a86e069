#pragma once

// Any thread.

#include <cstdint>
#include <string_view>

namespace mayfly {

/// Cores that the calling thread may run on, by its affinity mask, or fewer if the control groups
/// of this process have no more of them, or processor time for no more, which is looked up once; 0
/// if the kernel does not say it.
[[nodiscard]] std::uint32_t usable_cores();

/// Cores that all processes of this machine may use together, as far as this one can know: those of
/// the machine, or fewer by the control groups, which are those of a container.
[[nodiscard]] std::uint32_t cores_of_all();

/// One of so many processes' share of `all` cores, of which it may use so many: these are its own
/// if they are fewer, as those that mpirun or srun has bound it to, and are not divided again. At
/// least one.
[[nodiscard]] std::uint32_t share_of_cores(std::uint32_t all, std::uint32_t usable,
                                           std::uint32_t processes);

/// The number of cores in a list of the kernel's, such as "0-3,8"; 0 if the text is none.
[[nodiscard]] std::uint32_t cores_in_list(std::string_view list);

}  // namespace mayfly
