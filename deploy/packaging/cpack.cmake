# What cpack makes of an installed tree: a Debian package or RPM for each component, and one archive
# of all that is unpacked at /. Read each time that cpack runs, once for each kind.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
  GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_GROUPING IGNORE)

# about(PACKAGE SECTION TEXT): the first line of TEXT is the summary.
macro(about package section text)
  string(TOUPPER ${package} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_RPM_${upper}_PACKAGE_NAME ${package})
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${text}")
  string(REGEX REPLACE "\n.*" "" summary "${text}")
  set(CPACK_RPM_${upper}_PACKAGE_SUMMARY "${summary}")
endmacro()
about(qgpu-manager admin "divides this machine's GPU cards between programs
One on each machine with cards. It shares them by time and memory between unmodified CUDA and
OpenCL programs; a task's share and quota hold for all of its processes.")
about(qgpu-scheduler admin "decides which node and card of a cluster a task gets
One in a cluster of machines with qgpu-manager. It is also a scheduler extender of Kubernetes.")
about(qgpuctl utils "runs programs on shared GPU cards and shows who uses them
It speaks to qgpu-manager and qgpu-scheduler: run, top, explain, drain, events, doctor and more.")
about(libqgpu libs "the library that qgpu puts into the programs that share a card
It keeps their turns and memory quotas. A program without a task of qgpu's doesn't notice it.")
about(python3-qgpu python "runs programs on shared GPU cards, from Python
Tasks, events, reasons and what-if of qgpu-manager and qgpu-scheduler; notebooks as tasks.")

if(CPACK_GENERATOR STREQUAL "DEB")
  list(APPEND CPACK_COMPONENTS_ALL python3-qgpu)
  set(CPACK_DEBIAN_PYTHON3-QGPU_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_PYTHON3-QGPU_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_PYTHON3-QGPU_PACKAGE_DEPENDS "python3 (>= 3.9)")
  set(CPACK_DEBIAN_PYTHON3-QGPU_PACKAGE_RECOMMENDS "qgpuctl, libqgpu")
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
  set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_places.cmake)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  if(NOT CPACK_DEBIAN_COMPRESSION_TYPE)
    set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
  endif()
  set(sysusers "systemd | systemd-standalone-sysusers | systemd-sysusers")
  # A daemon and what it puts into programs are of one version.
  set(CPACK_DEBIAN_QGPU-MANAGER_PACKAGE_DEPENDS
    "libqgpu (= ${CPACK_PACKAGE_VERSION}), ${sysusers}")
  set(CPACK_DEBIAN_QGPU-MANAGER_PACKAGE_RECOMMENDS qgpuctl)
  set(CPACK_DEBIAN_QGPU-SCHEDULER_PACKAGE_DEPENDS ${sysusers})
  set(CPACK_DEBIAN_QGPU-SCHEDULER_PACKAGE_RECOMMENDS qgpuctl)
  set(CPACK_DEBIAN_QGPUCTL_PACKAGE_RECOMMENDS libqgpu)
  set(scripts ${CMAKE_CURRENT_LIST_DIR}/debian)
  foreach(package qgpu-manager qgpu-scheduler qgpuctl libqgpu python3-qgpu)
    string(TOUPPER ${package} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${scripts}/preinst)
  endforeach()
  list(APPEND CPACK_DEBIAN_PYTHON3-QGPU_PACKAGE_CONTROL_EXTRA
    ${scripts}/python3-qgpu/postinst ${scripts}/python3-qgpu/prerm)
  foreach(daemon qgpu-manager qgpu-scheduler)
    string(TOUPPER ${daemon} upper)
    set(conffiles ${CPACK_TOPLEVEL_DIRECTORY}/${daemon}/conffiles)
    file(WRITE ${conffiles} "/etc/default/${daemon}\n")
    list(APPEND CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${conffiles}
      ${scripts}/postinst ${scripts}/prerm ${scripts}/postrm)
  endforeach()
elseif(CPACK_GENERATOR STREQUAL "RPM")
  set(CPACK_RPM_COMPONENT_INSTALL ON)
  set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
  set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
  set(CPACK_RPM_PACKAGE_RELOCATABLE OFF)
  set(CPACK_RPM_SPEC_MORE_DEFINE "%define _buildhost localhost
%define use_source_date_epoch_as_buildtime Y
%define clamp_mtime_to_source_date_epoch Y
%define _build_id_links none")
  set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /etc /etc/default /usr/lib/systemd
    /usr/lib/systemd/system /usr/lib/sysusers.d /usr/share/man /usr/share/man/man1
    /usr/share/bash-completion /usr/share/bash-completion/completions /usr/share/zsh
    /usr/share/zsh/site-functions /usr/share/fish /usr/share/fish/vendor_completions.d)
  set(CPACK_RPM_QGPU-MANAGER_PACKAGE_REQUIRES "libqgpu = ${CPACK_PACKAGE_VERSION}, systemd")
  set(CPACK_RPM_QGPU-SCHEDULER_PACKAGE_REQUIRES systemd)
  foreach(package qgpu-manager qgpu-scheduler)
    string(TOUPPER ${package} upper)
    set(CPACK_RPM_${upper}_USER_FILELIST "%config(noreplace) /etc/default/${package}")
    foreach(script post preun)
      configure_file(${CMAKE_CURRENT_LIST_DIR}/rpm/${script}
        ${CPACK_TOPLEVEL_DIRECTORY}/${package}/${script} @ONLY)
    endforeach()
    set(CPACK_RPM_${upper}_POST_INSTALL_SCRIPT_FILE ${CPACK_TOPLEVEL_DIRECTORY}/${package}/post)
    set(CPACK_RPM_${upper}_PRE_UNINSTALL_SCRIPT_FILE ${CPACK_TOPLEVEL_DIRECTORY}/${package}/preun)
  endforeach()
else()
  set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_INCLUDE_TOPLEVEL_DIRECTORY OFF)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY OFF)
  set(CPACK_ARCHIVE_FILE_NAME qgpu-${CPACK_PACKAGE_VERSION}-linux-${CMAKE_HOST_SYSTEM_PROCESSOR})
  set(CPACK_PACKAGE_FILE_NAME ${CPACK_ARCHIVE_FILE_NAME})
endif()
