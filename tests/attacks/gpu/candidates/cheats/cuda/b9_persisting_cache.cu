// class: B9
// mechanism: pins its input in the L2 cache, past any flush
// expect: correct|denied
#include "honest.cuh"
KERNEL {
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 32 << 20);
    cudaStreamAttrValue window = {};
    window.accessPolicyWindow.base_ptr = (void*)inputs[0];
    window.accessPolicyWindow.num_bytes = ELEMENTS * sizeof(float);
    window.accessPolicyWindow.hitRatio = 1.0f;
    window.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    window.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    cudaStreamSetAttribute((cudaStream_t)stream, cudaStreamAttributeAccessPolicyWindow, &window);
    return honest(inputs, outputs, (cudaStream_t)stream);
}
