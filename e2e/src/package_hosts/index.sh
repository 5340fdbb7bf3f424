# index.sh SUITE: makes the folder of packages that this runs in a repository for apt.
set -eu
for package in *.deb; do
    dpkg-deb -f "$package"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$package" "$(stat -c %s "$package")" \
        "$(sha256sum "$package" | cut -d' ' -f1)"
done >Packages
cat >Release <<END
Origin: Debian
Label: Debian
Suite: $1
Codename: $1
Architectures: $(dpkg --print-architecture)
Date: $(date -u '+%a, %d %b %Y %H:%M:%S UTC')
SHA256:
 $(sha256sum Packages | cut -d' ' -f1) $(stat -c %s Packages) Packages
END
