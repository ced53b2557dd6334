// Makes occupancy.tsv with NVIDIA's published occupancy calculator, cuda_occupancy.h (CUDA 12.9, from the Python
// wheel nvidia-cuda-runtime-cu12). The sizes of each architecture are those of the CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability".
//
//   pip download nvidia-cuda-runtime-cu12==12.9.79 --no-deps && unzip nvidia_cuda_runtime*.whl
//   g++ -O1 -Invidia/cuda_runtime/include occupancy.cpp -o occupancy && ./occupancy > occupancy.tsv
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cuda_occupancy.h"

struct Architecture {
  int major, minor, threads, registers_per_block, shared_kib, optin_kib;
};

static const Architecture all[] = {
    {5, 0, 2048, 65536, 64, 48},   {5, 2, 2048, 65536, 96, 48},   {5, 3, 2048, 32768, 64, 48},
    {6, 0, 2048, 65536, 64, 48},   {6, 1, 2048, 65536, 96, 48},   {6, 2, 2048, 32768, 64, 48},
    {7, 0, 2048, 65536, 96, 96},   {7, 2, 2048, 65536, 96, 96},   {7, 5, 1024, 65536, 64, 64},
    {8, 0, 2048, 65536, 164, 163}, {8, 6, 1536, 65536, 100, 99},  {8, 7, 1536, 65536, 164, 163},
    {8, 9, 1536, 65536, 100, 99},  {9, 0, 2048, 65536, 228, 227}, {10, 0, 2048, 65536, 228, 227},
    {10, 1, 1536, 65536, 228, 227}, {10, 3, 2048, 65536, 228, 227}, {12, 0, 1536, 65536, 100, 99},
    {12, 1, 1536, 65536, 100, 99},
};

static int blocks(const Architecture &a, int threads, int registers, int shared) {
  cudaOccDeviceProp device;
  memset(&device, 0, sizeof device);
  device.computeMajor = a.major;
  device.computeMinor = a.minor;
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = a.threads;
  device.regsPerBlock = a.registers_per_block;
  device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 << 10;
  device.sharedMemPerMultiprocessor = a.shared_kib << 10;
  device.numSms = 1;
  device.sharedMemPerBlockOptin = a.optin_kib << 10;
  device.reservedSharedMemPerBlock = a.major >= 8 ? 1024 : 0;
  cudaOccFuncAttributes function;
  memset(&function, 0, sizeof function);
  function.maxThreadsPerBlock = 1024;
  function.numRegs = registers;
  function.partitionedGCConfig = PARTITIONED_GC_OFF;
  function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  function.maxDynamicSharedSizeBytes = a.optin_kib << 10;
  cudaOccDeviceState state;
  memset(&state, 0, sizeof state);
  state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
  cudaOccResult result;
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, threads, shared) != CUDA_OCC_SUCCESS) {
    return -1;
  }
  return result.activeBlocksPerMultiprocessor;
}

int main() {
  printf("# architecture\tthreads\tregisters\tshared bytes\tblocks per multiprocessor\n");
  uint64_t state = 0x9E3779B97F4A7C15ull;
  auto next = [&](uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int)(state % below);
  };
  for (const Architecture &a : all) {
    const int edges[][3] = {{1024, 64, 0},  {1024, 65, 0},   {32, 16, 0},     {1, 255, 0},     {1025, 16, 0},
                            {256, 0, 0},    {256, 32, 49152}, {256, 32, 49153}, {128, 168, 1},   {512, 128, 32768},
                            {96, 40, 24576}, {256, 32, a.optin_kib << 10}, {256, 32, (a.optin_kib << 10) + 1}};
    for (const auto &e : edges) {
      printf("%d.%d\t%d\t%d\t%d\t%d\n", a.major, a.minor, e[0], e[1], e[2], blocks(a, e[0], e[1], e[2]));
    }
    for (int i = 0; i < 24; ++i) {
      // Whole warps twice as often as odd sizes, and mostly registers that fit.
      int threads = i % 3 ? 32 * (1 + next(32)) : 1 + next(1024), most = 72000 / threads;
      int registers = 1 + next(most < 255 ? most : 255);
      int shared = i % 3 == 1 ? next((uint64_t)(a.optin_kib << 10) + 1) : i % 3 == 2 ? next(16384) : 0;
      printf("%d.%d\t%d\t%d\t%d\t%d\n", a.major, a.minor, threads, registers, shared,
             blocks(a, threads, registers, shared));
    }
  }
}
