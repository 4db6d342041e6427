// The tool that makes the manual page, with a version and sums, outside the module of the plugin.
module man

go 1.26.0

tool github.com/mmarkdown/mmark/v2

require (
	github.com/BurntSushi/toml v1.4.0 // indirect
	github.com/gomarkdown/markdown v0.0.0-20240730141124-034f12af3bf6 // indirect
	github.com/mmarkdown/mmark/v2 v2.2.47 // indirect
)
