qgpu_test(kube_test
  SOURCES cards_annotation_test.cc kube_bridge_test.cc kube_credentials_test.cc kube_client_test.cc
    kube_leader_test.cc kube_reflector_test.cc kube_role_label_test.cc
    kube_stand_in_test.cc kube_writer_test.cc
  LIBS qgpu_kube qgpu_pods qgpu_kube_testing LABELS unit
  TIMING KubeLeader.TheFirstLeadsAndOthersWait KubeLeader.OneThatFellSilentIsFollowedAfterTheLease
    KubeLeader.WhoCannotRenewStopsBeforeAnotherMayBeginAndGoesOnOnceItCan)
