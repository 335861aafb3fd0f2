# Read by ctest before it runs a test. Unless the environment says otherwise there are two threads, and waiting ones
# sleep: when tests run in parallel, spinning ones would take the cores from the others.
if(NOT DEFINED ENV{OMP_NUM_THREADS})
  set(ENV{OMP_NUM_THREADS} 2)
endif()
if(NOT DEFINED ENV{OMP_WAIT_POLICY})
  set(ENV{OMP_WAIT_POLICY} passive)
endif()
