// The one place where Asio's own functions are compiled; see BOOST_ASIO_SEPARATE_COMPILATION.

#include <boost/asio/impl/src.hpp>
