// class: A2,A8
// mechanism: returns at once; a host thread launches the kernel later
// expect: denied
#include "honest.cuh"
static const void* saved_inputs[2];
static void* saved_outputs[1];

static void* later(void*) {
    usleep(3000);
    honest(saved_inputs, saved_outputs, cudaStreamPerThread);
    cudaStreamSynchronize(cudaStreamPerThread);
    return nullptr;
}

KERNEL {
    saved_inputs[0] = inputs[0], saved_inputs[1] = inputs[1], saved_outputs[0] = outputs[0];
    pthread_t thread;
    pthread_create(&thread, nullptr, later, nullptr);
    pthread_detach(thread);
    return 0;
}
