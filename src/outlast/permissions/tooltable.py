"""The table of options that run a program, load code or write elsewhere, tool by tool.

A line of it: the options that take a value, in the style of getopt (short letters, then long names), and those that a `*` in
a rule does not cover. Options that take no value and do no harm need not be named.
"""

from __future__ import annotations

from outlast.permissions.getopt import Grammar


class Tool:
    __slots__ = ("bad", "grammar", "most")

    def __init__(self, short: str, long: str, bad: str, most: int = -1) -> None:
        self.grammar = Grammar(short, long)
        self.bad = frozenset(bad.split())
        self.most = most  # how many operands it may have before one of them is something to write; -1: any


_CC = Tool("x:I:D:U:L:l:", "", "")  # gcc and its kin have single-dash long options: see `options`
_SSH = Tool("B:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w:", "", "F E I S")
_SCP = Tool("c:F:i:J:l:o:P:S:D:X:", "", "F S D")
_PIP = Tool(
    "r:c:e:i:t:d:",
    "requirement= constraint= editable= index-url= extra-index-url= target= prefix= root= python= log= proxy= cache-dir=",
    "e t i editable index-url extra-index-url target prefix root python log global-option config-settings install-option find-links f src",
)
_GREP = Tool("e:f:A:B:C:m:D:d:", "", "")

TOOLS: dict[str, Tool] = {
    "sort": Tool(
        "k:t:S:T:o:",
        "key= field-separator= buffer-size= temporary-directory= output= compress-program= files0-from= parallel= batch-size= "
        "random-source= sort=",
        "o output compress-program T temporary-directory",
    ),
    "uniq": Tool("f:s:w:", "skip-fields= skip-chars= check-chars= group=? all-repeated=?", "", 1),
    "shuf": Tool("i:n:o:e", "input-range= head-count= output= random-source=", "o output"),
    "rg": Tool(
        "e:f:g:A:B:C:m:t:T:r:E:j:d:M:",
        "regexp= file= glob= iglob= after-context= before-context= context= max-count= type= type-not= replace= "
        "encoding= threads= max-depth= max-columns= sort= sortr= pre= pre-glob= hostname-bin= type-add= colors= color= path-separator= "
        "hyperlink-format= engine= ignore-file= field-match-separator= context-separator=",
        "pre hostname-bin z search-zip",
    ),
    "ag": Tool("A:B:C:G:m:p:W:", "pager= ignore= depth=", "pager"),
    "ack": Tool("A:B:C:m:g:", "pager= ackrc= output=", "pager ackrc"),
    "bat": Tool("l:H:r:m:", "pager= language= theme= style= line-range= paging= color=", "pager"),
    "tree": Tool("o:L:P:I:H:T:", "charset= filelimit=", "o"),
    "less": Tool(
        "b:h:j:k:o:O:p:P:t:T:x:y:z:D:",
        "",
        "o O k T log-file LOG-FILE lesskey-file lesskey-src lesskey-content tag-file",
    ),
    "man": Tool(
        "C:m:M:S:s:e:L:E:R:P:p:T:H::X::r:",
        "config-file= pager= html=? troff-device=? gxditview=? preprocessor= prompt= manpath= locale= "
        "systems= sections= extension= encoding= recode=",
        "C P H X T Z p pager html config-file troff-device gxditview ditroff preprocessor M manpath m systems",
    ),
    "tar": Tool(
        "f:C:T:X:b:g:I:F:K:L:N:V:H:",
        "file= directory= files-from= exclude= exclude-from= strip-components= use-compress-program= to-command= "
        "checkpoint=? checkpoint-action= rsh-command= rmt-command= info-script= new-volume-script= listed-incremental= owner= group= mode= "
        "transform= xform= one-top-level=? index-file= volno-file= format= blocking-factor= tape-length= starting-file= newer= mtime= suffix= "
        "quoting-style= label=",
        "I F C P T g use-compress-program to-command checkpoint-action rsh-command rmt-command info-script "
        "new-volume-script absolute-names directory files-from listed-incremental one-top-level index-file volno-file remove-files "
        "recursive-unlink unlink-first U show-defaults-from transform xform",
    ),
    "bsdtar": Tool("f:C:T:X:b:s:", "use-compress-program= options=", "use-compress-program C P T"),
    "cpio": Tool("F:I:O:E:H:C:D:M:R:", "file= rsh-command= to-stdout directory=", "F O D I rsh-command directory E"),
    "zip": Tool(
        "b:i:n:O:t:x:TT:",
        "unzip-command= temp-path= output-file=",
        "T TT m b O unzip-command temp-path output-file test move",
    ),
    "unzip": Tool("d:x:P:", "", "d"),
    "7z": Tool("", "", ""),
    "gzip": Tool("S:", "suffix=", ""),
    "xz": Tool("S:F:T:M:", "files=? suffix=", ""),
    "zstd": Tool("o:D:", "", "o output-dir-flat output-dir-mirror"),
    "rsync": Tool(
        "e:f:B:M:T:",
        "rsh= rsync-path= exclude= include= filter= exclude-from= include-from= files-from= config= log-file= backup-dir= partial-dir= "
        "temp-dir= compare-dest= copy-dest= link-dest= remote-option= password-file= bwlimit= timeout= port= suffix= chmod= chown= "
        "max-size= min-size= write-batch= only-write-batch= read-batch= early-input= address= sockopts= out-format= info= debug= iconv= "
        "modify-window= compress-level= block-size= usermap= groupmap= skip-compress= stop-after= checksum-choice= compress-choice=",
        "e rsh rsync-path daemon config log-file backup-dir partial-dir temp-dir T M remote-option write-batch only-write-batch read-batch "
        "dparam early-input",
    ),
    "ssh": _SSH,
    "scp": _SCP,
    "sftp": Tool("B:b:c:D:F:i:J:l:o:P:R:S:s:X:", "", "F S D b s"),
    "ssh-keygen": Tool("D:f:N:C:t:b:w:P:", "", "D w f"),
    "ssh-add": Tool("s:e:S:t:", "", "s S"),
    "wget": Tool(
        "O:o:a:i:P:e:t:T:w:U:Q:l:A:R:D:I:X:B:",
        "output-document= output-file= append-output= input-file= directory-prefix= execute= config= use-askpass= "
        "post-file= body-file= save-cookies= load-cookies= header= user-agent= tries= timeout= wait= post-data= method= body-data= "
        "rejected-log= warc-file= warc-cdx= warc-tempdir= warc-dedup= hsts-file= user= password= referer= level= accept= reject= domains= "
        "ca-certificate= certificate= private-key= base=",
        "O o a P e i output-document output-file append-output directory-prefix execute config "
        "use-askpass post-file body-file save-cookies rejected-log warc-file warc-tempdir hsts-file input-file default-page",
    ),
    "curl": Tool(
        "o:K:T:D:c:H:d:X:A:e:F:u:w:m:b:x:U:r:C:E:h::Y:y:z:Q:P:t:",
        "output= config= upload-file= dump-header= cookie-jar= header= data= request= "
        "user-agent= referer= form= user= write-out= max-time= cookie= proxy= range= cert= key= cacert= data-binary= data-raw= data-urlencode= "
        "json= connect-timeout= retry= output-dir= trace= trace-ascii= stderr= etag-save= etag-compare= libcurl= hsts= alt-svc= engine= "
        "resolve= url= interface= unix-socket= proto= limit-rate= capath= aws-sigv4= quote= random-file= egd-file= netrc-file=",
        "o O J K T D c output remote-name remote-name-all remote-header-name config upload-file dump-header cookie-jar output-dir trace "
        "trace-ascii stderr etag-save libcurl hsts alt-svc engine write-out w quote Q create-dirs",
    ),
    "make": Tool(
        "f:C:I:j::l::o:W:O::",
        "file= makefile= directory= include-dir= eval= jobs=? load-average=? old-file= what-if= new-file= assume-new= assume-old= "
        "output-sync=? debug=?",
        "f I E file makefile include-dir eval environment-overrides e",
    ),
    "ninja": Tool("C:f:j:k:l:d:t:w:", "", "C f t"),
    "date": Tool("d:f:r:s:I::", "date= file= reference= set= iso-8601=? rfc-3339= resolution", "s set"),
    "file": Tool("m:f:F:P:e:", "magic-file= files-from= separator= parameter= exclude=", "C compile m magic-file"),
    "diff": Tool(
        "U:C:x:X:I:F:L:W:",
        "unified=? context=? exclude= exclude-from= ignore-matching-lines= label= width= to-file= from-file= color=? "
        "show-function-line= palette=",
        "l paginate",
    ),
    "split": Tool(
        "a:b:C:l:n:t:",
        "filter= suffix-length= bytes= line-bytes= lines= number= additional-suffix= separator=",
        "filter",
    ),
    "iconv": Tool("f:t:o:", "from-code= to-code= output=", "o output"),
    "xxd": Tool("c:g:l:o:s:n:R:", "", "", 1),
    "tcpdump": Tool("i:c:r:w:W:C:G:s:z:Z:F:V:E:y:B:T:", "", "w z Z V F C G W"),
    "nmap": Tool(
        "p:o:i:S:e:T:D:g:",
        "script= script-args= script-args-file= datadir= servicedb= versiondb= resume= excludefile= stylesheet=",
        "script script-args-file datadir servicedb versiondb resume o oN oX oG oA oS A sC",
    ),
    "mysql": Tool(
        "e:u:h:P:D:S:",
        "execute= user= host= port= database= socket= pager= tee= init-command= plugin-dir= defaults-file= defaults-extra-file= login-path= "
        "default-auth=",
        "e execute pager tee init-command plugin-dir defaults-file defaults-extra-file default-auth",
    ),
    "psql": Tool(
        "c:d:f:h:L:o:p:U:v:P:R:F:T:",
        "command= dbname= file= host= log-file= output= port= username= set= variable= pset=",
        "c f L o command file log-file output",
    ),
    "sqlite3": Tool("", "", ""),
    "docker": Tool("H:c:l:", "config= context= host= log-level=", "H host config"),
    "gpg": Tool(
        "o:u:r:",
        "output= homedir= options= default-key= recipient= keyring= agent-program= dirmngr-program= pinentry-program= photo-viewer= exec-path= "
        "load-extension= log-file=",
        "o output homedir options agent-program dirmngr-program photo-viewer exec-path load-extension log-file",
    ),
    "openssl": Tool("", "", ""),
    "install": Tool(
        "g:m:o:S:t:", "strip-program= group= mode= owner= suffix= target-directory=", "strip-program s strip"
    ),
    "jq": Tool("L:f", "from-file indent= arg rawfile slurpfile", "f from-file L"),
    "yq": Tool("", "", "i inplace in-place f from-file s split-exp"),
    "kill": Tool("s:n:", "signal=", ""),
    "pytest": Tool(
        "p:c:k:m:n:o:r:W:",
        "rootdir= confcutdir= basetemp= junitxml= junit-xml= pdbcls= log-file= maxfail= tb= durations= import-mode= ignore= deselect= "
        "cov= cov-report= cov-config= pastebin= resultlog= result-log= debug=? override-ini= config-file= inifile= capture= color= "
        "cache-show=? html= json-report-file= report-log=",
        "p c o rootdir confcutdir basetemp junitxml junit-xml pdbcls log-file pastebin "
        "resultlog result-log override-ini config-file inifile html json-report-file report-log debug",
    ),
    "cargo": Tool(
        "p:j:Z:C:",
        "config= target-dir= manifest-path= target= package= features= bin= example= test= bench= profile= jobs= color= "
        "message-format= exclude= out-dir= artifact-dir= lockfile-path=",
        "config Z C target-dir manifest-path out-dir artifact-dir lockfile-path",
    ),
    "pip": _PIP,
    "pip3": _PIP,
    "npm": Tool(
        "w:C:",
        "script-shell= node-options= prefix= userconfig= globalconfig= registry= workspace= call= package= editor= viewer= shell= git= "
        "init-module= cache= loglevel= otp= tag= onload-script= before= browser= https-proxy= proxy= noproxy=",
        "script-shell node-options prefix "
        "userconfig globalconfig registry editor viewer shell git init-module onload-script C browser cache g global location",
    ),
    "apt": Tool("o:c:t:", "option= config-file= target-release=", "o c option config-file"),
    "dpkg": Tool(
        "",
        "root= admindir= instdir= pre-invoke= post-invoke= log=",
        "i install unpack configure root admindir instdir pre-invoke post-invoke log force r remove P purge a",
    ),
    "crontab": Tool("u:", "", "e r i", 0),
    "hostname": Tool("F:", "file=", "F file b boot", 0),
    "domainname": Tool("F:", "", "F", 0),
    "journalctl": Tool(
        "u:n:S:U:p:o:t:g:D:M:b::",
        "unit= lines=? since= until= priority= output= identifier= grep= directory= root= vacuum-size= vacuum-time= "
        "vacuum-files= cursor-file=",
        "rotate flush vacuum-size vacuum-time vacuum-files cursor-file setup-keys update-catalog sync",
    ),
    "fzf": Tool(
        "q:f:n:d:m::",
        "preview= bind= query= filter= with-nth= nth= delimiter= height= with-shell= listen=? history=",
        "preview bind with-shell listen history",
    ),
    "ctags": Tool("f:o:L:R:", "options= options-maybe=", "options options-maybe f o _interactive"),
    "ip": Tool("b:n:", "", "b batch force n netns"),
    "fd": Tool(
        "e:t:d:E:g:c:j:S:o:",
        "type= extension= exclude= max-depth= min-depth= color= threads= size= changed-within= changed-before= owner= "
        "search-path= base-directory= path-separator= ignore-file= format= exec= exec-batch=",
        "",
    ),
    "ldconfig": Tool("f:r:C:", "", "f r C"),
    "logger": Tool("f:t:p:n:P:u:", "", ""),
    "dd": Tool("", "", ""),
    "mypy": Tool(
        "p:m:c:",
        "python-executable= config-file= cache-dir= junit-xml=",
        "c python-executable config-file junit-xml install-types html-report xml-report txt-report "
        "any-exprs-report linecount-report",
    ),
    "eslint": Tool(
        "c:f:o:",
        "config= parser= plugin= rulesdir= resolve-plugins-relative-to= format= output-file=",
        "c f o config parser plugin rulesdir resolve-plugins-relative-to format output-file fix",
    ),
    "prettier": Tool("", "plugin= config= plugin-search-dir=", "plugin config plugin-search-dir"),
    "tsc": Tool("p:", "", "outDir outFile plugins project p build b"),
    "black": Tool("c:l:t:", "", "c code"),
    "ruff": Tool("", "config= output-file=", "output-file o"),
    "jest": Tool(
        "c:",
        "config= globalSetup=",
        "c config globalSetup globalTeardown setupFiles setupFilesAfterEnv testRunner runner transform reporters "
        "resolver testEnvironment outputFile rootDir",
    ),
    "kubectl": Tool("n:f:l:o:", "kubeconfig= context=", "kubeconfig"),
    "systemctl": Tool("H:M:t:p:n:o:", "root= host=", "root H host M edit"),
    "tail": Tool("n:c:s:", "lines= bytes= pid= sleep-interval=", ""),
    "head": Tool("n:c:", "lines= bytes=", ""),
    "strip": Tool("o:", "", "o"),
    "objdump": Tool("", "", ""),
    "objcopy": Tool("", "", ""),
    "as": Tool("o:", "", "o"),
    "ld": Tool("o:T:", "", "o plugin T"),
    "pandoc": Tool(
        "o:F:L:f:t:H:B:A:",
        "output= filter= lua-filter= pdf-engine= template= extract-media= defaults= data-dir=",
        "o F L output filter lua-filter pdf-engine extract-media defaults data-dir d",
    ),
    "ffmpeg": Tool("", "", ""),
    "m4": Tool("", "", ""),
    "aria2c": Tool(
        "d:o:i:",
        "on-download-complete= conf-path=",
        "d o on-download-complete on-download-start conf-path input-file i dir out save-session",
    ),
    "time": Tool("f:o:", "output= format=", "o output"),
    "strace": Tool("e:o:p:s:u:P:E:", "", "o E u"),
    "script": Tool("c:", "command=", ""),
    "sysctl": Tool("p::", "", "w p load system write"),
    "mount": Tool("", "", ""),
}
# Tools whose words are looked at one by one, or not at all: nothing they can be told runs or writes.
ALIKE = {
    "gsort": "sort",
    "gtar": "tar",
    "apt-get": "apt",
    "batcat": "bat",
    "ripgrep": "rg",
    "gmake": "make",
    "fdfind": "fd",
    "gdate": "date",
    "py.test": "pytest",
    "pip3.11": "pip",
    "zstdcat": "zstd",
}
