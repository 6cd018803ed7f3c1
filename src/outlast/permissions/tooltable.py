"""The table of options that run a program, load code or write elsewhere, tool by tool.

`takes` lists the options that take a value, in the style of getopt: short letters first, then long names. `never` lists
those that a `*` in a rule does not cover. `operands=N`: one more operand than N is something that is written or set.
Options that take no value and do no harm need not be named.
"""

from __future__ import annotations

import re

from outlast.permissions.getopt import Grammar

_TABLE = """
sort
    takes -k:t:S:T:o: key= field-separator= buffer-size= temporary-directory= output= compress-program=
        files0-from= parallel= batch-size= random-source= sort=
    never T compress-program o output temporary-directory
uniq operands=1
    takes -f:s:w: skip-fields= skip-chars= check-chars= group=? all-repeated=?
shuf
    takes -i:n:o:e input-range= head-count= output= random-source=
    never o output
rg
    takes -e:f:g:A:B:C:m:t:T:r:E:j:d:M: regexp= file= glob= iglob= after-context= before-context= context=
        max-count= type= type-not= replace= encoding= threads= max-depth= max-columns= sort= sortr= pre=
        pre-glob= hostname-bin= type-add= colors= color= path-separator= hyperlink-format= engine= ignore-file=
        field-match-separator= context-separator=
    never hostname-bin pre search-zip z
ag
    takes -A:B:C:G:m:p:W: pager= ignore= depth=
    never pager
ack
    takes -A:B:C:m:g: pager= ackrc= output=
    never ackrc pager
bat
    takes -l:H:r:m: pager= language= theme= style= line-range= paging= color=
    never pager
tree
    takes -o:L:P:I:H:T: charset= filelimit=
    never o R
less
    takes -b:h:j:k:o:O:p:P:t:T:x:y:z:D:
    never LOG-FILE O T k lesskey-content lesskey-file lesskey-src log-file o tag-file
man
    takes -C:m:M:S:s:e:L:E:R:P:p:T:H::X::r: config-file= pager= html=? troff-device=? gxditview=? preprocessor=
        prompt= manpath= locale= systems= sections= extension= encoding= recode=
    never C H M P T X Z config-file ditroff gxditview html m manpath p pager preprocessor systems troff-device
tar
    takes -f:C:T:X:b:g:I:F:K:L:N:V:H: file= directory= files-from= exclude= exclude-from= strip-components=
        use-compress-program= to-command= checkpoint=? checkpoint-action= rsh-command= rmt-command= info-script=
        new-volume-script= listed-incremental= owner= group= mode= transform= xform= one-top-level=? index-file=
        volno-file= format= blocking-factor= tape-length= starting-file= newer= mtime= suffix= quoting-style=
        label=
    never C F I P T U absolute-names checkpoint-action directory files-from g index-file info-script
        listed-incremental new-volume-script one-top-level recursive-unlink remove-files rmt-command rsh-command
        show-defaults-from to-command transform unlink-first use-compress-program volno-file xform
bsdtar
    takes -f:C:T:X:b:s: use-compress-program= options=
    never C P T use-compress-program
cpio
    takes -F:I:O:E:H:C:D:M:R: file= rsh-command= to-stdout directory=
    never D E F I O directory rsh-command
zip
    takes -b:i:n:O:t:x:T: unzip-command= temp-path= output-file=
    never O T TT b m move output-file temp-path test unzip-command
unzip
    takes -d:x:P:
    never d
zstd
    takes -o:D:
    never o output-dir-flat output-dir-mirror
rsync
    takes -e:f:B:M:T: rsh= rsync-path= exclude= include= filter= exclude-from= include-from= files-from= config=
        log-file= backup-dir= partial-dir= temp-dir= compare-dest= copy-dest= link-dest= remote-option=
        password-file= bwlimit= timeout= port= suffix= chmod= chown= max-size= min-size= write-batch=
        only-write-batch= read-batch= early-input= address= sockopts= out-format= info= debug= iconv=
        modify-window= compress-level= block-size= usermap= groupmap= skip-compress= stop-after=
        checksum-choice= compress-choice=
    never M T backup-dir config daemon dparam e early-input log-file only-write-batch partial-dir read-batch
        remote-option rsh rsync-path temp-dir write-batch
ssh
    takes -B:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w:
    never E F I S
scp
    takes -c:F:i:J:l:o:P:S:D:X:
    never D F S
sftp
    takes -B:b:c:D:F:i:J:l:o:P:R:S:s:X:
    never D F S b s
ssh-keygen
    takes -D:f:N:C:t:b:w:P:
    never D f w
ssh-add
    takes -s:e:S:t:
    never S s
wget
    takes -O:o:a:i:P:e:t:T:w:U:Q:l:A:R:D:I:X:B: output-document= output-file= append-output= input-file=
        directory-prefix= execute= config= use-askpass= post-file= body-file= save-cookies= load-cookies=
        header= user-agent= tries= timeout= wait= post-data= method= body-data= rejected-log= warc-file=
        warc-cdx= warc-tempdir= warc-dedup= hsts-file= user= password= referer= level= accept= reject= domains=
        ca-certificate= certificate= private-key= base=
    never O P a append-output body-file config default-page directory-prefix e execute hsts-file i input-file o
        output-document output-file post-file rejected-log save-cookies use-askpass warc-file warc-tempdir
curl
    takes -o:K:T:D:c:H:d:X:A:e:F:u:w:m:b:x:U:r:C:E:h::Y:y:z:Q:P:t: output= config= upload-file= dump-header=
        cookie-jar= header= data= request= user-agent= referer= form= user= write-out= max-time= cookie= proxy=
        range= cert= key= cacert= data-binary= data-raw= data-urlencode= json= connect-timeout= retry=
        output-dir= trace= trace-ascii= stderr= etag-save= etag-compare= libcurl= hsts= alt-svc= engine=
        resolve= url= interface= unix-socket= proto= limit-rate= capath= aws-sigv4= quote= random-file=
        egd-file= netrc-file=
    never D J K O Q T alt-svc c config cookie-jar create-dirs dump-header engine etag-save hsts libcurl o output
        output-dir quote remote-header-name remote-name remote-name-all stderr trace trace-ascii upload-file w
        write-out
make
    takes -f:C:I:j::l::o:W:O:: file= makefile= directory= include-dir= eval= jobs=? load-average=? old-file=
        what-if= new-file= assume-new= assume-old= output-sync=? debug=?
    never E I e environment-overrides eval f file include-dir makefile
ninja
    takes -C:f:j:k:l:d:t:w:
    never C f t
date
    takes -d:f:r:s:I:: date= file= reference= set= iso-8601=? rfc-3339= resolution
    never s set
file
    takes -m:f:F:P:e: magic-file= files-from= separator= parameter= exclude=
    never C compile m magic-file
diff
    takes -U:C:x:X:I:F:L:W: unified=? context=? exclude= exclude-from= ignore-matching-lines= label= width=
        to-file= from-file= color=? show-function-line= palette=
    never l paginate
split
    takes -a:b:C:l:n:t: filter= suffix-length= bytes= line-bytes= lines= number= additional-suffix= separator=
    never filter
iconv
    takes -f:t:o: from-code= to-code= output=
    never o output
xxd operands=1
    takes -c:g:l:o:s:n:R:
tcpdump
    takes -i:c:r:w:W:C:G:s:z:Z:F:V:E:y:B:T:
    never C F G V W Z w z
nmap
    takes -p:o:i:S:e:T:D:g: script= script-args= script-args-file= datadir= servicedb= versiondb= resume=
        excludefile= stylesheet=
    never A datadir o oA oG oN oS oX resume sC script script-args-file servicedb versiondb
mysql
    takes -e:u:h:P:D:S: execute= user= host= port= database= socket= pager= tee= init-command= plugin-dir=
        defaults-file= defaults-extra-file= login-path= default-auth=
    never default-auth defaults-extra-file defaults-file e execute init-command pager plugin-dir tee
psql
    takes -c:d:f:h:L:o:p:U:v:P:R:F:T: command= dbname= file= host= log-file= output= port= username= set=
        variable= pset=
    never L c command f file log-file o output
docker
    takes -H:c:l: config= context= host= log-level=
    never H config host
gpg
    takes -o:u:r: output= homedir= options= default-key= recipient= keyring= agent-program= dirmngr-program=
        pinentry-program= photo-viewer= exec-path= load-extension= log-file=
    never agent-program dirmngr-program exec-path homedir load-extension log-file o options output photo-viewer
install
    takes -g:m:o:S:t: strip-program= group= mode= owner= suffix= target-directory=
    never s strip strip-program
jq
    takes -L:f from-file indent= arg rawfile slurpfile
    never L f from-file
yq
    never f from-file i in-place inplace s split-exp
pytest
    takes -p:c:k:m:n:o:r:W: rootdir= confcutdir= basetemp= junitxml= junit-xml= pdbcls= log-file= maxfail= tb=
        durations= import-mode= ignore= deselect= cov= cov-report= cov-config= pastebin= resultlog= result-log=
        debug=? override-ini= config-file= inifile= capture= color= cache-show=? html= json-report-file=
        report-log=
    never basetemp c confcutdir config-file debug html inifile json-report-file junit-xml junitxml log-file o
        override-ini p pastebin pdbcls report-log result-log resultlog rootdir
cargo
    takes -p:j:Z:C: config= target-dir= manifest-path= target= package= features= bin= example= test= bench=
        profile= jobs= color= message-format= exclude= out-dir= artifact-dir= lockfile-path=
    never C Z artifact-dir config lockfile-path manifest-path out-dir target-dir
pip
    takes -r:c:e:i:t:d: requirement= constraint= editable= index-url= extra-index-url= target= prefix= root=
        python= log= proxy= cache-dir=
    never config-settings e editable extra-index-url f find-links global-option i index-url install-option log
        prefix python root src t target
pip3
    takes -r:c:e:i:t:d: requirement= constraint= editable= index-url= extra-index-url= target= prefix= root=
        python= log= proxy= cache-dir=
    never config-settings e editable extra-index-url f find-links global-option i index-url install-option log
        prefix python root src t target
npm
    takes -w:C: script-shell= node-options= prefix= userconfig= globalconfig= registry= workspace= call=
        package= editor= viewer= shell= git= init-module= cache= loglevel= otp= tag= onload-script= before=
        browser= https-proxy= proxy= noproxy=
    never C browser cache editor g git global globalconfig init-module location node-options onload-script
        prefix registry script-shell shell userconfig viewer
apt
    takes -o:c:t: option= config-file= target-release=
    never c config-file o option
dpkg
    takes root= admindir= instdir= pre-invoke= post-invoke= log=
    never P a admindir configure force i install instdir log post-invoke pre-invoke purge r remove root unpack
crontab operands=0
    takes -u:
    never e i r
hostname operands=0
    takes -F: file=
    never F b boot file
domainname operands=0
    takes -F:
    never F
journalctl
    takes -u:n:S:U:p:o:t:g:D:M:b:: unit= lines=? since= until= priority= output= identifier= grep= directory=
        root= vacuum-size= vacuum-time= vacuum-files= cursor-file=
    never cursor-file flush rotate setup-keys sync update-catalog vacuum-files vacuum-size vacuum-time
fzf
    takes -q:f:n:d:m:: preview= bind= query= filter= with-nth= nth= delimiter= height= with-shell= listen=?
        history=
    never bind history listen preview with-shell
ctags
    takes -f:o:L:R: options= options-maybe=
    never _interactive f o options options-maybe
ip
    takes -b:n:
    never b batch force n netns
fd
    takes -e:t:d:E:g:c:j:S:o: type= extension= exclude= max-depth= min-depth= color= threads= size=
        changed-within= changed-before= owner= search-path= base-directory= path-separator= ignore-file= format=
        exec= exec-batch=
ldconfig
    takes -f:r:C:
    never C f r
mypy
    takes -p:m:c: python-executable= config-file= cache-dir= junit-xml=
    never any-exprs-report c config-file html-report install-types junit-xml linecount-report python-executable
        txt-report xml-report
eslint
    takes -c:f:o: config= parser= plugin= rulesdir= resolve-plugins-relative-to= format= output-file=
    never c config f fix format o output-file parser plugin resolve-plugins-relative-to rulesdir
prettier
    takes plugin= config= plugin-search-dir=
    never config plugin plugin-search-dir
tsc
    takes -p:
    never b build outDir outFile p plugins project
black
    takes -c:l:t:
    never c code
ruff
    takes config= output-file=
    never o output-file
jest
    takes -c: config= globalSetup=
    never c config globalSetup globalTeardown outputFile reporters resolver rootDir runner setupFiles
        setupFilesAfterEnv testEnvironment testRunner transform
kubectl
    takes -n:f:l:o: kubeconfig= context=
    never kubeconfig
systemctl
    takes -H:M:t:p:n:o: root= host=
    never H M edit host root
strip
    takes -o:
    never o
as
    takes -o:
    never o
ld
    takes -o:T:
    never T o plugin
pandoc
    takes -o:F:L:f:t:H:B:A: output= filter= lua-filter= pdf-engine= template= extract-media= defaults= data-dir=
    never F L d data-dir defaults extract-media filter lua-filter o output pdf-engine
aria2c
    takes -d:o:i: on-download-complete= conf-path=
    never conf-path d dir i input-file o on-download-complete on-download-start out save-session
time
    takes -f:o: output= format=
    never o output
strace
    takes -e:o:p:s:u:P:E:
    never E o u
sysctl
    takes -p::
    never load p system w write
cmake
    takes -S:B:G:D:U:P:C:T:A:t:j::
    never P C graphviz trace-redirect profiling-output
hg
    takes -R:
    never config config-file R repository e ssh remotecmd
svn
    takes -r:m:
    never config-option config-dir editor-cmd diff-cmd diff3-cmd diff
helm
    takes -f:n: post-renderer= kubeconfig= plugin=
    never post-renderer
nc
    takes -p:s:w:q:i:
    never e c exec sh-exec lua-exec
info
    takes -f:n:o:d:k:I:w: file= node= output= directory= apropos= index-search= dribble= restore= init-file=
    never o d directory dribble init-file output restore
ss
    takes -F:D:f:A:N: filter= diag= family= query= net=
    never D F K N diag filter kill net
lsof
    takes -D:p:u:i::c:
    never D
dmesg
    takes -l:f:n:s:F: level= facility= console-level= file=
    never c C D E n clear read-clear console-off console-level console-on
tput
    takes -T:
    never S
pyright
    takes -p:
    never project p createstub venvpath pythonpath w watch
exiftool
    never if p o w W config use
"""

# Other names of the same tools.
ALIKE = {
    "gsort": "sort",
    "gtar": "tar",
    "apt-get": "apt",
    "batcat": "bat",
    "gmake": "make",
    "fdfind": "fd",
    "gdate": "date",
    "py.test": "pytest",
    "pip3": "pip",
}


class Tool:
    __slots__ = ("bad", "grammar", "most")

    def __init__(self, takes: list[str], never: list[str], most: int) -> None:
        short = "".join(word[1:] for word in takes if word.startswith("-"))
        self.grammar = Grammar(short, " ".join(word for word in takes if not word.startswith("-")))
        self.bad = frozenset(never)
        self.most = most  # how many operands it may have before one of them is written; -1: any


def _tools(table: str) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for block in re.split(r"\n(?=\S)", table.strip()):
        head, _, rest = block.partition("\n")
        name, _, operands = head.partition(" operands=")
        takes, _, never = rest.partition("never ")
        tools[name] = Tool(takes.split()[1:], never.split(), int(operands or -1))
    return tools


TOOLS = _tools(_TABLE)
