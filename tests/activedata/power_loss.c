/* Keeps an image of what a disk surely has: preloaded into a process, it copies each file when it is synced, and the
   names in each folder when that is. Whatever was written and not synced is not in the image.

   IMAGE/file-KEY is the content of a file. IMAGE/folder-KEY has a line "p PATH" and a line "f KEY NAME" or "d KEY NAME"
   for each entry. KEY is the number and the birth time of the inode: a number that is used again is another file. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int key_of(int at, const char *name, int flags, char *key, size_t size, mode_t *mode) {
    struct statx found;
    if (statx(at, name, flags | AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME | STATX_TYPE, &found)) return -1;
    snprintf(key, size, "%llu-%lld-%u", (unsigned long long)found.stx_ino, (long long)found.stx_btime.tv_sec,
             found.stx_btime.tv_nsec);
    *mode = found.stx_mode;
    return 0;
}

static void keep(int descriptor) {
    char key[96], made[PATH_MAX + 128], final[PATH_MAX + 64], path[PATH_MAX], buffer[1 << 16], self[64];
    const char *image = getenv("POWER_LOSS_IMAGE"), *root = getenv("POWER_LOSS_ROOT");
    mode_t mode;
    if (!image || !root || key_of(descriptor, "", AT_EMPTY_PATH, key, sizeof key, &mode)) return;
    snprintf(self, sizeof self, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(self, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (strncmp(path, root, strlen(root))) return;
    snprintf(final, sizeof final, "%s/%s-%s", image, S_ISDIR(mode) ? "folder" : "file", key);
    snprintf(made, sizeof made, "%s.%d.%d.made", final, (int)getpid(), (int)gettid());
    int out = open(made, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (out < 0) return;
    if (S_ISDIR(mode)) {
        if (dprintf(out, "p %s\n", path) < 0) abort();
        DIR *folder = opendir(path);
        for (struct dirent *each; folder && (each = readdir(folder));) {
            char line[PATH_MAX + 128], entry[96];
            mode_t entry_mode;
            if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, "..")) continue;
            if (key_of(dirfd(folder), each->d_name, 0, entry, sizeof entry, &entry_mode)) continue;
            int size = snprintf(line, sizeof line, "%c %s %s\n", S_ISDIR(entry_mode) ? 'd' : 'f', entry, each->d_name);
            if (write(out, line, size) != size) abort();
        }
        if (folder) closedir(folder);
    } else {
        int in = open(path, O_RDONLY);
        for (ssize_t got; in >= 0 && (got = read(in, buffer, sizeof buffer)) > 0;)
            if (write(out, buffer, got) != got) abort();
        if (in >= 0) close(in);
    }
    close(out);
    rename(made, final);
}

int fsync(int descriptor) {
    keep(descriptor);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(descriptor);
}

int fdatasync(int descriptor) {
    keep(descriptor);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(descriptor);
}
