"""The toy grammar's words, as data for `tools.toy.notation`.

A line is `class paradigm words : properties`, where a word may list irregular forms: a noun its plural,
a verb its past, participle and gerund. A property is a trait that rules ask for, or `relation=classes`,
the words that may stand in this relation, as class:weight,class,... A class may be a group of classes
(`name = classes`), a property the name of a bundle of properties. With `=`, each head word has
favourites of its own among the words; with `~`, none.

All bilexical preferences are here: which words a verb takes as subject, object, prepositional phrase or
complement, which adjectives and prepositional phrases a noun takes. So words decide attachment.

No noun or adjective begins with a vowel, so that the article is always "a".
"""

LEXICON = """
# groups of classes
people    = name:4 kin:4 worker:3
human_act = cooking drinking reading watching building driving trading wearing keeping helping music putting
            giving moving:4 resting:3
clause    = cooking drinking reading watching building driving trading keeping helping music giving moving:2
            resting:2 feeling:3 rising:2 ruling hiring
quality   = person_adj:5 animal_adj:2 size_adj:2 machine_adj:2 colour_adj:2 text_adj:3 house_adj:2 room_adj:2
            land_adj firm_adj money_adj:2 plan_adj:2 desk_adj food_adj:3 drink_adj:2
day_time  = yesterday:2 past:3 on.day:3 before.event after.event

# properties that many verbs share
human_deed bundle : human when=day_time freq=freq adv~human_act next~human_act
beast_deed bundle : where=in.nature when=day_time freq=freq adv~moving
firm_deed  bundle : where=in.town when=past:4,in.month:3 freq=freq

# the head words of sentences
start     root   ROOT : root~cooking:4,drinking:3,reading:4,watching:4,building:3,driving:3,trading:5,
                 wearing:2,keeping:3,hunting:2,biting:2,helping:4,music:2,putting:3,giving:3,moving:5,
                 resting:4,barking:2,rising:4,managing:3,ruling:2,hiring:2,saying:6,wanting:3,feeling:3,
                 quality:5,worker,there:2

# verbs
cooking   verb   eat/ate/eaten cook bake cut/cut/cut/cutting : human_deed subj=people obj=food
                 pp=with.cutlery:5,for.guest:3 where=in.room manner=care purpose~helping
drinking  verb   drink/drank/drunk spill pour : human_deed subj=people obj=drink:3,vessel:3
                 pp=in.room,from.vessel:2 where=at.event,in.room manner=pace
reading   verb   read/read/read write/wrote/written study : human_deed subj=people obj=text
                 pp=to.person:2,with.pen:3 where=in.room manner=care,pace purpose~helping
watching  verb   see/saw/seen watch find/found/found paint : human_deed subj=people
                 obj=animal:3,kin:2,worker:2,building:2 pp=with.lens:5,from.part:3
                 where=in.nature,near.building manner=care
building  verb   build/built/built repair clean destroy : human_deed subj=worker:5,kin:2,name:2
                 obj=building:3,part:4,furniture:3 pp=with.handtool:6,for.amount:2
                 where=in.town manner=care purpose~helping
driving   verb   drive/drove/driven park : human_deed subj=people obj=vehicle
                 pp=to.town:4,into.building:2 where=near.building manner=pace
trading   verb   buy/bought/bought sell/sold/sold rent steal/stole/stolen : human_deed subj=people:3,company:2
                 obj=food:2,clothes:3,vehicle:3,furniture:2,building pp=for.amount:5,from.person:3
                 where=in.town manner=mood
wearing   verb   wear/wore/worn wash : human_deed subj=kin:4,name:4,worker obj=clothes
                 pp=at.event where=in.room,at.event manner=care
keeping   verb   feed/fed/fed ride/rode/ridden catch/caught/caught : human_deed subj=people obj=animal
                 pp=with.feed:3,across.nature:2,in.nature:2 where=in.nature manner=care
helping   verb   help love marry visit meet/met/met teach/taught/taught : human_deed subj=people obj=people
                 pp=at.event:3,with.work:3 where=in.town,at.event manner=mood
music     verb   play hear/heard/heard : human_deed subj=people obj=instrument:3,song:3
                 pp=at.event:3,for.guest:3 where=in.room manner=mood,care
putting   verb   put/put/put/putting leave/left/left hide/hid/hidden : human_deed bound subj=people
                 obj=text:2,clothes:2,cutlery:2,instrument pp=on.furniture:5,under.furniture:3,behind.part:2
                 where=in.room
giving    verb   give/gave/given send/sent/sent show/showed/shown bring/brought/brought : human_deed bound
                 subj=people obj=text:4,clothes:2,food:2 pp=to.person where=at.event
moving    verb   walk run/ran/run/running travel go/went/gone hurry : human_deed subj=people
                 pp=to.town:3,into.room:3,across.nature:3,through.nature:2,with.person:2
                 manner=pace purpose~trading,helping,watching
resting   verb   sleep/slept/slept wait sit/sat/sat/sitting work laugh dance : human_deed subj=people
                 pp=on.furniture:2,in.room:2,with.person:2,in.town:2 where=in.room,at.event manner=mood
hunting   verb   chase follow scare : beast_deed subj=animal obj=animal:3,kin:2,worker
                 pp=across.nature:3,through.nature manner=pace
biting    verb   bite/bit/bitten kill scratch : beast_deed subj=animal obj=animal:3,kin:2,worker
                 pp=in.body manner=pace
barking   verb   bark growl hide/hid/hidden : beast_deed subj=animal
                 pp=behind.building:3,in.nature:4,at.person:3,under.furniture:2 manner=mood,pace
rising    verb   rise/rose/risen fall/fell/fallen drop/dropped/dropped/dropping double : firm_deed
                 subj=cost,earning pp=to.amount:5,by.amount:4,in.town:2 manner=amount_adv
                 adv~managing next~rising
managing  verb   raise reduce : firm_deed subj=company:4,office:3 obj=cost,earning
                 pp=to.amount:4,by.amount:3,in.month:3 manner=amount_adv adv~rising next~ruling
ruling    verb   sign reject approve : firm_deed subj=company:3,office:4 obj=plan
                 pp=at.meeting:4,in.month:3 manner=care adv~rising next~managing
hiring    verb   hire dismiss pay/paid/paid : firm_deed subj=company:3,office:2 obj=worker
                 pp=in.month adv~rising next~managing
saying    verb   say/said/said think/thought/thought know/knew/known believe hope : human
                 subj=people:6,office:2,company:2 comp~clause freq=freq
wanting   verb   want try refuse : human subj=people xcomp~human_act freq=freq
there     past   was : sg thing=kin:3,animal:3,vehicle:2 where=in.town,near.building
there     past   were : pl thing=kin:3,animal:3,vehicle:2 where=in.town,near.building

# people, animals, organisations
name      name   Anna Peter Maria Tom Clara Simon Ruth Henry Lucy Jacob : called=worker with=name
kin       noun   woman/women man/men boy girl child/children mother father brother sister neighbour friend
                 : who pp=with.feature:5,from.town:3 with=kin
worker    noun   farmer teacher doctor nurse lawyer baker painter soldier writer singer judge
                 : who human subj=name:3,kin:2 pp=from.town:3,with.feature:2 with=worker
animal    noun   dog cat horse cow wolf/wolves fox sheep/sheep mouse/mice rabbit bird
                 : owner=name pp=with.fur:4,in.nature:2 with=animal
company   noun   company bank factory shop : pp=in.town:3,of.place:2 with=company
office    noun   council court government : pp=of.place with=office

# things
food      noun   cake pie potato/potatoes : pp=with.filling:5,from.town with=food
food      mass   bread soup cheese rice meat : pp=with.filling:5,from.shop:2 with=food
drink     mass   water tea coffee wine milk beer : with=drink
vessel    noun   cup glass bottle : needy pp=of.drink
filling   mass   cream butter honey salt jam : with=filling
feed      mass   hay corn grass
text      noun   book letter story poem newspaper report : needy pp=about.topic:6,from.person:3 owner=name
                 with=text
topic     noun   war murder storm strike
topic     mass   weather love money music
instrument noun  violin piano guitar : owner=name with=instrument
song      noun   song waltz : pp=about.topic:3,from.place:2
cutlery   noun   knife/knives spoon fork
handtool  noun   hammer saw brush 
pen       noun   pen pencil
lens      noun   telescope camera 
vehicle   noun   car train boat bus truck : owner=name pp=with.part:3,from.place:2 with=vehicle
building  noun   house church bridge tower hotel school
                 : pp=in.town:3,near.nature:3,with.part:3 with=building
part      noun   roof door window wall gate : needy pp=of.building
room      noun   kitchen garden bedroom hall library : pp=of.building
furniture noun   table chair bed shelf/shelves desk : pp=from.shop with=furniture
clothes   noun   hat coat shirt dress shoe : owner=name pp=with.button:4,from.place:2 with=clothes
button    noun   button collar
feature   noun   beard scar
fur       noun   tail collar
body      noun   leg hand neck
plan      noun   plan law proposal contract : pp=for.building:4,with.company:3,about.money:3 with=plan
cost      noun   price cost : needy pp=of.goods with=cost
earning   noun   rent wage profit tax : pp=in.town with=earning
event     noun   wedding meeting party concert trial dinner
meeting   noun   meeting conference

# places and times
town      noun   village city town harbour market
place     name   Lisbon Vienna Dublin Boston Prague
nature    noun   forest river mountain lake valley beach
yesterday mass   yesterday today : bare
past      mass   week month year night winter : past
day       name   Monday Tuesday Friday Sunday
month     name   March May July

# amounts of money
amount    number 5 20 85 150 600 1,200 7.50 : number
amount    number million billion : scale

# prepositions: one entry for each kind of object
with.cutlery     prep with : pobj=cutlery
with.handtool    prep with : pobj=handtool
with.pen         prep with : pobj=pen
with.lens        prep with : pobj=lens
with.feed        prep with : pobj=feed
with.feature     prep with : pobj=feature
with.fur         prep with : pobj=fur
with.filling     prep with : pobj=filling
with.button      prep with : pobj=button
with.part        prep with : pobj=part
with.person      prep with : pobj=people
with.company     prep with : pobj=company
with.work        prep with : pobj=text,building,plan
for.guest        prep for : pobj=kin:3,name:2,worker
for.amount       prep for : pobj=amount
for.building     prep for : pobj=building
from.person      prep from : pobj=people
from.vessel      prep from : pobj=vessel
from.part        prep from : pobj=part
from.town        prep from : pobj=town,place
from.place       prep from : pobj=place
from.shop        prep from : pobj=company,town
to.person        to   to : pobj=people
to.town          to   to : pobj=town:3,place:2
to.amount        to   to : pobj=amount
by.amount        prep by : pobj=amount
in.room          prep in : pobj=room
in.town          prep in : pobj=town:2,place:3
in.nature        prep in : pobj=nature
in.body          prep in : pobj=body
in.month         prep in : pobj=month
into.room        prep into : pobj=room
into.building    prep into : pobj=building
on.furniture     prep on : pobj=furniture
near.nature      prep near : pobj=nature
on.day           prep on : pobj=day
under.furniture  prep under : pobj=furniture
behind.part      prep behind : pobj=part
behind.building  prep behind : pobj=building
near.building    prep near : pobj=building
across.nature    prep across : pobj=nature
through.nature   prep through : pobj=nature,town
at.event         prep at : pobj=event
at.meeting       prep at : pobj=meeting
at.person        prep at : pobj=kin,worker
before.event     prep before : pobj=event
after.event      prep after : pobj=event
about.topic      prep about : pobj=topic
about.money      prep about : pobj=earning
of.drink         prep of : pobj=drink
of.building      prep of : pobj=building
of.place         prep of : pobj=place
of.goods         prep of : pobj=food,vehicle,clothes

# adjectives: the nouns that they modify, or are said of
feeling     adj  happy sad tired proud : human subj=people
person_adj  adj  tall kind clever brave famous poor rich young : human subj=kin,worker
animal_adj  adj  wild hungry fierce tame : subj=animal
size_adj    adj  small big black white : subj=animal:2,vehicle,clothes
machine_adj adj  rusty fast cheap new heavy : subj=vehicle:3,handtool,furniture
colour_adj  adj  red blue green dirty : subj=clothes:4,vehicle
text_adj    adj  long short boring funny secret : subj=text:4,song:2,event:2
house_adj   adj  tall ruined huge famous : subj=building:4,part
room_adj    adj  dark bright cold : subj=room:4,building
land_adj    adj  deep quiet wide distant : subj=nature:3,town:2
firm_adj    adj  local foreign private powerful : subj=company:3,office:2
money_adj   adj  high low monthly : subj=cost,earning
plan_adj    adj  secret new difficult popular : subj=plan
desk_adj    adj  round low wooden : subj=furniture
tool_adj    adj  sharp blunt long : subj=cutlery:2,handtool:2,pen
body_adj    adj  broken left right : subj=body
hair_adj    adj  long grey thin : subj=feature:2,fur:2
food_adj    adj  fresh hot sweet sour cold stale : subj=food:3,drink:2
drink_adj   adj  strong bitter warm : subj=drink:3,filling

# adverbs
care      adv    carefully badly quickly patiently : grade
pace      adv    quickly slowly quietly suddenly : grade
mood      adv    quietly happily loudly secretly : grade
amount_adv adv   sharply slightly steadily suddenly
freq      adv    often never always sometimes soon
"""
