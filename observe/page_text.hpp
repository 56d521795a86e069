#pragma once

// The page, as page/embed.py puts it together when Mayfly is built.

#include <string_view>

namespace mayfly::observe {

/// The whole HTML. "<!-- policy -->" and "<!-- data -->" are the places for what a report adds.
extern const std::string_view kPage;
/// The sources that its policy allows: 'sha256-...' of its script and of its style.
extern const std::string_view kScriptHash;
extern const std::string_view kStyleHash;

}  // namespace mayfly::observe
