#pragma once
// The catalogue of names by which qgpu and a Kubernetes cluster speak: resources, labels and
// annotations, who writes each and what it means. docs/reference/kubernetes.md is made of it, and a
// test sees that no other name stands in the code, the manifests or their scripts.
//
// Manifests and scripts of others use these names: they stay.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace qgpu {

// What device plugins of NVIDIA and of AMD give whole cards by. A card is whole or shared, never
// both.
inline constexpr std::string_view kWholeCards[] = {"nvidia.com/gpu", "amd.com/gpu"};
constexpr bool isWholeCards(std::string_view resource) {
  return std::ranges::find(kWholeCards, resource) != std::end(kWholeCards);
}

enum class KubeNameKind : std::uint8_t { Resource, Annotation, Label, Taint };

struct KubeName {
  KubeNameKind kind;
  bool prefixed;  // stands behind --resource-prefix and '/'
  std::string_view name;
  std::string_view of;  // what carries it
  std::string_view writer;
  std::string_view meaning;
};

inline constexpr KubeName kKubeNames[] = {
    {KubeNameKind::Resource, true, "qgpu-core", "container of an ordinary pod", "the pod's author",
     "percent of a card, 1 to 99; or N*100: N whole cards"},
    {KubeNameKind::Resource, true, "qgpu-memory", "container", "the pod's author",
     "GiB of a card's memory, a whole number, at least 1; whole cards take all. With "
     "`--memory-unit=MiB` MiB"},
    {KubeNameKind::Resource, true, "qgpu-core-greedy", "container of an offline pod",
     "the pod's author", "percent of one card that it may take while others leave it, 1 to 100"},
    {KubeNameKind::Annotation, true, "app-class", "pod", "the pod's author",
     "`online` or `offline`; absent: ordinary. It counts when the pod is bound"},
    {KubeNameKind::Annotation, false, "qgpu.io/card-models", "pod", "the pod's author",
     "the models of cards that it may run on, as in `Tesla T4, A10`, by the names that `qgpuctl "
     "cards` shows; absent: any"},
    {KubeNameKind::Annotation, false, "qgpu.io/group", "pod", "the pod's author",
     "starts together with the other pods of its namespace with this name, or not yet"},
    {KubeNameKind::Annotation, false, "qgpu.io/group-by", "pod", "the pod's author",
     "the same, by the value of the pod's label with this key"},
    {KubeNameKind::Annotation, false, "qgpu.io/group-size", "pod", "the pod's author",
     "how many pods of the group start together, 1 to 256"},
    {KubeNameKind::Annotation, false, "qgpu.io/assigned", "pod", "qgpu-scheduler, at the bind",
     "JSON: the UUIDs of each container's cards"},
    {KubeNameKind::Annotation, false, "qgpu.io/woken", "pod that waits", "qgpu-scheduler",
     "changed when the pod could go now, so that kube-scheduler tries it again"},
    {KubeNameKind::Annotation, false, "qgpu.io/cards", "node", "qgpu-manager",
     "JSON: the node's cards and their health; who removes it takes the node out"},
    {KubeNameKind::Annotation, false, "qgpu.io/cordoned", "node", "qgpu-scheduler",
     "JSON: cards that operators cordoned or drain"},
    {KubeNameKind::Annotation, false, "qgpu.io/cordoned-by", "node", "uninstall.sh",
     "the node was cordoned by this script, which takes it back at its end"},
    {KubeNameKind::Label, false, "qgpu-device-enable", "node",
     "the administrator, install.sh; qgpu-manager with `--label-node`",
     "`enable`: its cards are shared"},
    {KubeNameKind::Label, false, "qgpu.io/claims", "node", "the administrator, install.sh",
     "`enable`: its cards are given by ResourceClaims, and to no pod by the resources above"},
    {KubeNameKind::Label, false, "mixed-qgpu-enable", "node", "the administrator, install.sh",
     "`enable`: online and offline pods may run there"},
    {KubeNameKind::Label, true, "qgpu-schedule-policy", "node", "the administrator",
     "the policy, written as for `--policy`; wins over it"},
    {KubeNameKind::Label, false, "qgpu.io/scheduler", "pod of qgpu-scheduler", "qgpu-scheduler",
     "`leads` or `follows`; the Service leads to the first"},
    {KubeNameKind::Label, false, "qgpu.io/webhook", "namespace", "the administrator",
     "`ignore`: the admission webhook leaves its pods alone"},
    {KubeNameKind::Label, false, "qgpu.io/claims", "namespace", "the administrator",
     "`enable`: its pods that ask by the resources above are made to ask by ResourceClaims"},
    {KubeNameKind::Label, false, "qgpu.io/scheduler-name", "namespace", "the administrator",
     "the scheduler of its pods that ask for resources of qgpu and name none"},
    {KubeNameKind::Taint, false, "qgpu.io/unavailable", "device of a ResourceSlice", "qgpu-manager",
     "the card takes nothing new; the value is its state, as `cordoned`"},
};

}  // namespace qgpu
