package tidegate

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"
)

type place struct {
	Name string `json:"name" description:"As people there say it."`
}

type everything struct {
	place
	Kind    string         `json:"kind" enum:"city,village"`
	People  uint           `json:"people"`
	Height  *float64       `json:"height"`
	Tags    []string       `json:"tags,omitempty"`
	Corner  [2]float32     `json:"corner"`
	Rivers  map[string]int `json:"rivers"`
	Founded time.Time
	Address netip.Addr      `json:"address"`
	Seal    []byte          `json:"seal"`
	Rest    json.RawMessage `json:"rest"`
	Parts   []place         `json:"parts"`
	Big     bool            `json:"big"`
	Secret  string          `json:"-"`
	hidden  int
}

// A schema says what encoding/json writes, fields in their order.
func TestSchema(t *testing.T) {
	const want = `{"type":"object","properties":{` +
		`"name":{"type":"string","description":"As people there say it."},` +
		`"kind":{"type":"string","enum":["city","village"]},` +
		`"people":{"type":"integer","minimum":0},` +
		`"height":{"type":"number"},` +
		`"tags":{"type":"array","items":{"type":"string"}},` +
		`"corner":{"type":"array","items":{"type":"number"},"minItems":2,"maxItems":2},` +
		`"rivers":{"type":"object","additionalProperties":{"type":"integer"}},` +
		`"Founded":{"type":"string","format":"date-time"},` +
		`"address":{"type":"string"},` +
		`"seal":{"type":"string"},` +
		`"rest":{},` +
		`"parts":{"type":"array","items":{"type":"object","properties":{` +
		`"name":{"type":"string","description":"As people there say it."}},"required":["name"],"additionalProperties":false}},` +
		`"big":{"type":"boolean"}},` +
		`"required":["name","kind","people","corner","rivers","Founded","address","seal","rest","parts","big"],` +
		`"additionalProperties":false}`
	got, err := Schema[everything]()
	if err != nil || got != want {
		t.Errorf("%v\n%s\nnot\n%s", err, got, want)
	}
}

type tree struct{ Children []tree }

// What JSON cannot hold, or no finite schema describes, is refused.
func TestNoSchema(t *testing.T) {
	for name, schema := range map[string]func() (string, error){
		"a channel":      Schema[struct{ C chan int }],
		"keys":           Schema[map[int]string],
		"a tree":         Schema[tree],
		"in a slice":     Schema[[]func()],
		"behind a field": Schema[struct{ M map[string]complex64 }],
	} {
		if text, err := schema(); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}
