# patched.sh FOLDER: makes of each package of Ceph in FOLDER one of the same release with a higher version, as a fixed bug brings.
set -eu
for package in "$1"/*.deb; do
    source=$(dpkg-deb -f "$package" Source)
    case ${source:-$(dpkg-deb -f "$package" Package)} in ceph | 'ceph '*) ;; *) continue ;; esac
    version=$(dpkg-deb -f "$package" Version)
    dpkg-deb -R "$package" tree
    # Also where packages depend on each other.
    sed -i "s/$(echo "$version" | sed 's/[.]/\\&/g')/$version+patched1/g" tree/DEBIAN/control
    dpkg-deb -Zgzip -z1 --root-owner-group -b tree .
    rm -r tree
done
