#pragma once

// Makes a report of a page: one HTML file that contains its numbers and can be opened from a disk
// without a network. Pure; any thread.

#include <string>
#include <string_view>

namespace mayfly::observe {

/// `page` with its data and with a policy that allows only its own script and style, which have
/// these hashes. They are inserted at "<!-- data -->" and "<!-- policy -->". No text in `json` can
/// begin a tag.
[[nodiscard]] std::string report_page(std::string_view page, std::string_view script_hash,
                                      std::string_view style_hash, std::string_view json);

}  // namespace mayfly::observe
