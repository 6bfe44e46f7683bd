// Lets libraries that a new compiler links run on Linux of 2018 (glibc 2.27, GCC 7).
//
// build.py and arm64.py include this file first in each C++ source. Without it, the libraries would
// need versions of symbols that the glibc and libstdc++ of the compiler have, but older ones lack.

#include <sys/stat.h>

#include <new>

#ifdef __aarch64__
#define LEGACY_OPT_OLDEST "GLIBC_2.17"
#define LEGACY_OPT_STAT_VERSION 0
#else
#define LEGACY_OPT_OLDEST "GLIBC_2.2.5"
#define LEGACY_OPT_STAT_VERSION 1
#endif

// glibc 2.34 moved these functions into libc.so, under a new version.
__asm__(".symver dlopen, dlopen@" LEGACY_OPT_OLDEST);
__asm__(".symver dlsym, dlsym@" LEGACY_OPT_OLDEST);
__asm__(".symver dlerror, dlerror@" LEGACY_OPT_OLDEST);

// Before glibc 2.33, lstat was an inline function that called this one.
__asm__(".symver __lxstat, __lxstat@" LEGACY_OPT_OLDEST);
extern "C" int __lxstat(int version, const char* path, struct stat* state);
static inline int legacy_opt_lstat(const char* path, struct stat* state) {
  return __lxstat(LEGACY_OPT_STAT_VERSION, path, state);
}
#define lstat legacy_opt_lstat

// std::shared_ptr reads this variable of glibc 2.32, and omits atomic operations if it is not 0.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;

// std::allocator calls this function of GCC 11's libstdc++.
namespace std {
void __throw_bad_array_new_length() { throw std::bad_array_new_length(); }
}  // namespace std
