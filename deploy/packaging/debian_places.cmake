# Debian's zsh reads what packages bring from a folder of its own.
set(zsh ${CPACK_TEMPORARY_DIRECTORY}/qgpuctl/usr/share/zsh)
if(EXISTS ${zsh}/site-functions)
  file(RENAME ${zsh}/site-functions ${zsh}/vendor-completions)
endif()
