"""What destroys a machine is denied in whatever spelling, and its harmless neighbours run."""

from __future__ import annotations

import os

import pytest

from outlast.permissions.guarded import hazard
from outlast.permissions.policies import load
from outlast.permissions.ruling import rule
from outlast.settings import Settings

HOME = os.path.expanduser("~")

DENIED = [
    # rm of the root, of what is right below it, of a home, with every spelling of the flags
    "rm -rf /",
    "rm -fr /",
    "rm -r -f /",
    "rm -f -r /",
    "rm -Rf /",
    "rm -rfv /",
    "rm --recursive --force /",
    "rm --recurs --force /",
    "rm --r /",
    "rm / -rf",
    "rm -r /",
    "rm -rf -- /",
    "rm -rf //",
    "rm -rf /.",
    "rm -rf /./",
    "rm -rf /usr/..",
    "rm -rf /*",
    "rm -rf /.*",
    "rm -rf /e*",
    "rm -rf /???",
    "rm -rf /{bin,etc}",
    "rm -rf {x,/}",
    "rm -rf /{x,usr/{x,bin}}/",
    "rm -rf --no-preserve-root /",
    "rm --no-preserve-root -rf build /",
    "rm -rf build /etc",
    "rm -rf /etc/",
    "rm -rf /etc/*",
    "rm -rf /usr /bin",
    "rm -rf /home",
    "rm -rf /home/*",
    "rm -rf /home/somebody",
    "rm -rf /var/lib",
    "rm -rf /usr/bin",
    "rm -rf ~",
    "rm -rf ~/",
    "rm -rf ~/*",
    "rm -rf ~root",
    "rm -rf $HOME",
    'rm -rf "$HOME"',
    'rm -rf "${HOME}"/',
    "rm -rf $HOME/*",
    "/bin/rm -rf /",
    "r\\m -rf /",
    "'rm' -rf '/'",
    "$'\\x72m' -rf /",
    "sudo rm -rf /",
    "sudo -u root /usr/bin/rm -rf /etc",
    "env A=1 nice -n 5 rm -rf /",
    "bash -c 'rm -rf /'",
    "ls && (rm -rf /)",
    "echo $(rm -rf /)",
    "if true; then rm -rf /; fi",
    "find . -name x | xargs rm -rf /",
    "f() { rm -rf /; }; f",
    "timeout 5 rm -rf ~",
    "outlast run 'rm -rf /'",
    "outlast run --bg --policy yolo -- rm -rf /",
    # other ways to the same end
    "find / -delete",
    "find /etc -type f -delete",
    "find / -exec rm -rf {} +",
    "mv / /tmp/x",
    "mv /etc /tmp/x",
    "mv /* /tmp",
    "mv ~ /tmp/x",
    "mv important /dev/null",
    "chmod -R 777 /",
    "chmod -R 000 /etc",
    "chmod 777 -R /",
    "chmod --recursive 777 /usr",
    "chown -R nobody /",
    "chown -Rh nobody:nobody /var /usr",
    "sudo chown -R me: /",
    "chgrp -R staff /",
    # disks
    "mkfs /dev/sda1",
    "mkfs.ext4 /dev/sda1",
    "sudo mkfs.xfs -f /dev/nvme0n1",
    "/sbin/mkfs.btrfs /dev/vdb",
    "mke2fs /dev/sdb",
    "mkswap /dev/sda2",
    "wipefs -a /dev/sda",
    "wipefs --all --force /dev/sda",
    "dd if=/dev/zero of=/dev/sda",
    "dd if=/dev/urandom of=/dev/nvme0n1 bs=1M",
    "dd of=/dev/disk/by-id/ata-x if=a",
    "dd if=x of=/dev/mapper/root conv=notrunc",
    "cat image > /dev/sda",
    "echo x >> /dev/sda1",
    "> /dev/sda",
    "echo 1 >| /dev/vda",
    "echo x &> /dev/sdb",
    "cat image | tee /dev/sda",
    "sudo tee -a /dev/mmcblk0 < image",
    "cp image /dev/sda",
    "cp --target-directory=/dev/sda image",
    "shred /dev/sda",
    "shred -n 1 -z /dev/nvme0n1p2",
    "truncate -s 0 /dev/sda",
    "blkdiscard /dev/sda",
    "sgdisk --zap-all /dev/sda",
    "parted /dev/sda mklabel gpt",
    "sfdisk /dev/sda < table",
    "cryptsetup luksFormat /dev/sda2",
    "nvme format /dev/nvme0n1",
    "zpool destroy tank",
    "lvremove vg0/root",
    "echo b > /proc/sysrq-trigger",
    # the machine, and everything that runs on it
    "shutdown -h now",
    "shutdown now",
    "sudo reboot",
    "reboot -f",
    "halt",
    "poweroff",
    "/sbin/shutdown -r +1",
    "init 0",
    "telinit 6",
    "systemctl poweroff",
    "systemctl --force reboot",
    "kill -9 -1",
    "kill -1",
    "kill -KILL -1",
    "kill -s KILL -1",
    "kill -s 9 -- -1",
    "kill -- -1",
    "kill -9 1",
    "killall5 -9",
    ":(){ :|:& };:",
    ":() { : | : & }; :",
    "bomb() { bomb | bomb & }; bomb",
    "function b() { b|b& }; b",
    "crontab -r",
    "crontab -u somebody -r",
]

HARMLESS = [
    "rm -rf build",
    "rm -rf ./node_modules",
    "rm -rf dist/*",
    "rm -rf *",
    "rm -rf {build,dist}",
    "rm -rf /tmp/{a,b}",
    "rm -rf ./*",
    "rm -f /etc/nginx/sites-enabled/old",
    "rm -rf /etc/nginx/sites-enabled/old",
    "rm -rf /tmp/build-123",
    "rm -rf /tmp/*",
    "rm -rf /var/tmp/x",
    "rm -rf ~/project/build",
    "rm -rf ~/.cache/pip",
    'rm -rf "$HOME/project/build"',
    'rm -rf "$BUILD"',
    "rm -rf /home/somebody/project/target",
    "rm file",
    "rm /tmp/x",
    "rmdir /tmp/x",
    "find . -name '*.pyc' -delete",
    "find / -name core",
    "find /tmp -name 'x*' -delete",
    "mv a b",
    "mv build /tmp/old-build",
    "mv ~/a ~/b",
    "chmod -R u+w build",
    "chmod 755 /usr/local/bin/tool",
    "chown -R app /app",
    "chown -R me ~/project",
    "dd if=a of=b.img",
    "dd if=/dev/zero of=disk.img bs=1M count=10",
    "dd if=/dev/sda of=backup.img",
    "dd if=/dev/urandom of=/dev/null count=1",
    "echo x > /dev/null",
    "make > build.log 2>&1",
    "echo x > /dev/stderr",
    "echo hello | tee log",
    "cp a b",
    "cp /dev/sda backup.img",
    "shred secret.txt",
    "truncate -s 0 log",
    "fdisk -l /dev/sda",
    "parted /dev/sda print",
    "lsblk",
    "mount",
    "systemctl status nginx",
    "systemctl restart nginx",
    "shutdown -c",
    "kill 1234",
    "kill -9 1234",
    "kill -1 1234",
    "kill -HUP 1234",
    "kill %1",
    "kill -l",
    "crontab -l",
    "crontab -e",
    "git init",
    "npm init -y",
    "init_db",
    "echo rm -rf /",
    "echo 'rm -rf /'",
    "grep -r 'mkfs' docs",
    "git commit -m 'reboot; rm -rf /'",
    "a() { b | c & }; a",
    "echo ':(){ :|:& };:'",
    "git commit -m 'no more :(){ :|:& };: here'",
    # the session goes on being a shell
    "export A=1",
    "source venv/bin/activate",
    "f() { echo hi; }; f",
    "cd /tmp && ls",
    "A=1; echo $A",
    "make && make install",
    "curl https://example.org | head",
    "python3 -c 'print(1)'",
]


def verdict(line: str) -> str:
    return rule(line, load("guarded", Settings())).judgement.verdict


@pytest.mark.parametrize("line", DENIED)
def test_what_destroys_a_machine_is_denied(line: str) -> None:
    assert verdict(line) == "deny"


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_neighbours_run_unasked(line: str) -> None:
    assert verdict(line) == "allow"


def test_the_home_directory_is_known_by_its_path() -> None:
    look = hazard("/data/people/me")
    assert look(("rm", "-r", "/data/people/me"))
    assert look(("rm", "-r", "/data/people/me/*"))
    assert not look(("rm", "-r", "/data/people/me/x"))
    assert not look(("rm", "-r", "/data/people/you"))


def test_a_word_that_is_known_only_when_it_runs_is_no_hazard_by_itself() -> None:
    look = hazard("/home/me")
    assert not look(("rm", "-rf", None))
    assert look(("rm", "-rf", None, "/"))
    assert not look((None, "-rf", "/"))
