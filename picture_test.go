package fastudp

import (
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"
)

// TestPicture checks that the files, metrics and reasons in docs/packet.svg are there.
func TestPicture(t *testing.T) {
	text, err := os.ReadFile("docs/packet.svg")
	if err != nil {
		t.Fatal(err)
	}
	var code []byte
	for _, file := range []string{"metrics.go", "counters.go"} {
		text, err := os.ReadFile("plugin/fastudp/" + file)
		if err != nil {
			t.Fatal(err)
		}
		code = append(code, text...)
	}
	words := make(map[string][]string) // of the texts, by their class
	class := ""
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			class = ""
			for _, a := range token.Attr {
				if token.Name.Local == "text" && a.Name.Local == "class" {
					class = a.Value
				}
			}
		case xml.EndElement:
			class = ""
		case xml.CharData:
			words[class] = append(words[class], strings.Fields(string(token))...)
		}
	}
	legend := map[string]bool{"file.go": true, "name_total": true}
	for _, file := range words["file"] {
		if _, err := os.Stat("plugin/fastudp/" + file); err != nil && !legend[file] {
			t.Errorf("the picture names %s: %v", file, err)
		}
	}
	names := append(words["count"], words["gone"]...)
	for _, name := range names {
		if !strings.Contains(string(code), `"`+strings.TrimSuffix(name, ":")+`"`) && !legend[name] {
			t.Errorf("the picture names %s, which is no metric and no reason for a drop", name)
		}
	}
	if len(words["file"]) < 20 || len(names) < 15 {
		t.Errorf("%d files and %d names are too few to be all", len(words["file"]), len(names))
	}
}
