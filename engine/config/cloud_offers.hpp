#pragma once

// The text of the setting cloud_offers, which is short enough for a flag: the offers that may be
// requested, each as TYPE@ZONE:MARKET=PRICE*SPEED#MOST, separated by commas. Only TYPE or ZONE is
// required: "n1-standard-8@us-central1-a:spot=0.12*1.0", "@gpu-partition", "small:on_demand=0.5#2".
// The setting cloud_composition contains the number of workers for each offer:
// "2 x n1-standard-8@us-central1-a + 1 x small".

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The offers in the order of the text; none for an empty text. kInvalidInput with the name of the
/// setting and the wrong offer.
[[nodiscard]] Result<std::vector<cloud_hooks::OfferTerms>> parse_offers(
    const std::string& text, const std::string& setting = "cloud_offers");

/// The offers for workers, with the numbers from cloud_composition. kInvalidInput, with the wrong
/// part, if the composition cannot be parsed, if a part does not name exactly one offer, if its
/// number of workers differs from the job's or exceeds an offer's limit, or if it does not fit
/// other settings.
[[nodiscard]] Result<std::vector<cloud_hooks::OfferTerms>> worker_offers(const JobConfig& config);

/// The offer as the settings write it, without its price: "TYPE@ZONE:MARKET".
[[nodiscard]] std::string offer_name(const cloud_hooks::Offer& offer);

/// For workers that compute on GPUs: kInvalidInput if the machine type of an offer is known to have
/// none, or one that is too old; and, if all workers must compute the same bits, if two offers are
/// known to have different ones. Unknown machine types are left to the workers' own checks. Pure.
[[nodiscard]] Result<void> check_gpus(const std::vector<cloud_hooks::OfferTerms>& offers,
                                      bool must_be_equal);

/// Whether workers on servers compute on GPUs: by cloud_worker_args, or else by the job's device.
[[nodiscard]] bool servers_use_cuda(const JobConfig& config);

/// Whether the types of offers are a cloud's machine types: not Slurm's constraints, for example.
[[nodiscard]] bool names_cloud_machines(const JobConfig& config);

/// The valid values of cloud_provider.
[[nodiscard]] std::vector<std::string> cloud_provider_names();

}  // namespace mayfly::engine
